//! The start of a helper, and the connection to the helper of another process, before this process
//! has threads.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use srd_daemon::handover::wire::file_of;
use srd_trust::privileges;
use srd_vpc_file::VpcFile;

use super::client::{Helper, opened, reloaded};
use super::wire::{self, Receiver};
use super::{Answer, Message, Request, Spec};
use crate::machine::locks;

/// Longest wait for the start of the helper. It is longer than the helper waits for the helpers of
/// killed cards.
const START_WAIT_MAX: Duration = Duration::from_secs(30);

/// A helper process that has been started, before this process has a thread that receives the
/// helper's answers.
#[derive(Debug)]
pub(crate) struct Starting {
    socket: OwnedFd,
    /// The helper; `None` if it is the child of another process.
    child: Option<Child>,
    adds: File,
}

impl Starting {
    /// Starts this program as a helper. The helper inherits only one end of a pair of sockets,
    /// standard output and standard error.
    pub(crate) fn start(spec: &Spec) -> Result<Self> {
        locks::make(Path::new(locks::DIRECTORY))?;
        let (socket, other) = wire::pair()?;
        let program = std::env::current_exe().context("where is this program")?;
        srd_net::raw::keep_descriptors_from_children()
            .context("cannot keep descriptors from the helper")?;
        let mut command = Command::new(program);
        command.arg("card-helper").env_clear().stdin(Stdio::from(other));
        for name in ["PATH", "RUST_LOG", "JOURNAL_STREAM"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // The helper is in a separate process group, so that signals to the programs of the
        // terminal do not end it.
        let mut child = command.process_group(0).spawn().context("the helper cannot be started")?;
        drop(command);
        let begun = locks::add_to(Path::new(locks::DIRECTORY), child.id())
            .and_then(|adds| Self::begin(&socket, spec).map(|()| adds));
        match begun {
            Ok(adds) => Ok(Self { socket, child: Some(child), adds }),
            Err(error) => {
                // The helper ends when its socket is closed.
                drop(socket);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Continues with the helper of another process. `descriptors`: the result of
    /// [`Helper::shared`] in that process. Dropping the result changes nothing.
    pub(crate) fn adopt(descriptors: Vec<OwnedFd>) -> Result<Self> {
        let descriptors = <[OwnedFd; 2]>::try_from(descriptors);
        let Ok([socket, adds]) = descriptors else { bail!("the node that runs has no helper") };
        Ok(Self { socket, child: None, adds: adds.into() })
    }

    /// Reads the configuration again, as [`Helper::reload`] does. Returns its cloud; `None` if it
    /// names no file of a cloud.
    pub(crate) fn reload(&self) -> Result<Option<VpcFile>> {
        let (answer, descriptors) = self.ask(Request::Reload, &[])?;
        Ok(reloaded(answer, descriptors)?.0)
    }

    /// Reads the file of a cloud, as [`Helper::vpc`] does.
    pub(crate) fn vpc(&self, path: &Path) -> Result<VpcFile> {
        let path = std::path::absolute(path)?;
        let (_, descriptors) = self.ask(Request::Vpc(path.clone()), &[])?;
        opened(descriptors, &path)
    }

    /// Gives the helper of another process the standard error of this one, to which it writes its
    /// messages after [`Helper::renew`]. A process without privileges is a child of that process,
    /// and has the same standard error.
    pub(crate) fn offer_output(&self) -> Result<()> {
        if privileges::has_none() {
            return Ok(());
        }
        let stderr = std::io::stderr();
        self.ask(Request::Output, &[stderr.as_fd()]).map(drop)
    }

    fn ask(
        &self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let Self { socket, .. } = self;
        set_socket_timeout(socket, Timeout::Recv, Some(START_WAIT_MAX))?;
        let message = Message { id: 1, body: Some(request) };
        let sent = wire::send(socket, &message, descriptors, START_WAIT_MAX);
        sent.context("the helper cannot be asked")?;
        let said = Receiver::new().next::<Answer>(socket).context("the helper")?;
        let said = said.context("the helper has ended")?;
        set_socket_timeout(socket, Timeout::Recv, None)?;
        let answer = said.message.map_err(anyhow::Error::msg)?.body;
        Ok((answer.context("the helper says nothing")?.ok()?, said.descriptors))
    }

    /// Sends the settings to the helper, and waits until the helper is ready.
    fn begin(socket: &OwnedFd, spec: &Spec) -> Result<()> {
        set_socket_timeout(socket, Timeout::Recv, Some(START_WAIT_MAX))?;
        let publics = file_of(&[&serde_json::to_vec(&spec.publics)?])?;
        wire::send(
            socket,
            &Message { id: 0, body: Some(spec) },
            &[publics.as_fd()],
            START_WAIT_MAX,
        )?;
        let said = Receiver::new().next::<Answer>(socket).context("the helper")?;
        let said = said.context("the helper has ended")?.message.map_err(anyhow::Error::msg)?;
        set_socket_timeout(socket, Timeout::Recv, None)?;
        said.body.context("the helper says nothing")?.ok().map(drop)
    }

    /// Starts a thread that receives answers. Call this after privileges were dropped.
    pub(crate) fn listen(self) -> Result<Helper> {
        Helper::over(self.socket, self.child, Some(self.adds))
    }
}
