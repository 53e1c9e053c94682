//! `srd top`: shows the state of the daemon live, in a terminal.
//!
//! A separate thread requests the state from the daemon once per interval. The main thread draws
//! and reads keys, so that a slow daemon does not delay the keys.

mod draw;
mod view;

use super::{Target, explain};
use crate::failure::usage;
use crate::units;
use anyhow::{Context, Result};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use srd_daemon::control::{Client, Request};
use srd_daemon::snapshot::{PeerSnapshot, Snapshot};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use view::View;

/// Interval at which the view is drawn.
const ROUND: Duration = Duration::from_millis(50);
/// Maximum number of flows that are requested from the daemon.
const FLOWS: usize = 50;

/// `srd top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    target: Target,
    /// Time between two updates, in seconds or with a unit, for example 1 or 250ms.
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = units::parse_time)]
    interval: Duration,
}

/// Reply of the daemon to one request of its state.
struct Look {
    snapshot: Snapshot,
    /// The selected peer with its paths; `None` if the peer no longer exists.
    chosen: Option<PeerSnapshot>,
}

/// Name of the selected peer, shared with the thread that requests the state.
type Chosen = Arc<Mutex<Option<String>>>;

/// Runs `srd top`.
pub(super) fn run(args: &TopArgs) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return usage("srd top needs a terminal; elsewhere use srd status --json");
    }
    let path = args.target.path()?;
    // An error of the first request is reported before the view fills the screen.
    let chosen = Chosen::default();
    let first = look(&path, &chosen)?;
    let (sender, news) = mpsc::sync_channel(1);
    let (shared, interval) = (Arc::clone(&chosen), args.interval);
    thread::Builder::new()
        .name("srd-top".into())
        .spawn(move || ask(&path, interval, &shared, &sender))
        .context("no thread")?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let mut view = View::new(first.snapshot);
    let end = show(&mut terminal, &mut view, &news, &chosen);
    ratatui::restore();
    end
}

/// Requests the state once per interval, until the receiver is dropped.
fn ask(
    path: &Path,
    interval: Duration,
    chosen: &Chosen,
    sender: &SyncSender<Result<Look, String>>,
) {
    loop {
        let found = look(path, chosen).map_err(|e| format!("{e:#}"));
        if sender.send(found).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

fn look(path: &Path, chosen: &Chosen) -> Result<Look> {
    let connect = || Client::connect(path).map_err(explain);
    let status = Request::Status { paths: false, flows: FLOWS };
    let snapshot: Snapshot = connect()?.ask(&status).map_err(explain)?;
    let peer = chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_there = |name: &String| snapshot.peers.iter().any(|p| p.name == *name);
    let chosen = match peer.filter(is_there) {
        Some(peer) => Some(connect()?.ask(&Request::Paths { peer }).map_err(explain)?),
        None => None,
    };
    Ok(Look { snapshot, chosen })
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    news: &Receiver<Result<Look, String>>,
    chosen: &Chosen,
) -> Result<()> {
    loop {
        match news.try_recv() {
            Ok(Ok(look)) => view.take(look.snapshot, look.chosen),
            Ok(Err(why)) => view.complain(why),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => anyhow::bail!("the thread that asks has ended"),
        }
        *chosen.lock().unwrap_or_else(PoisonError::into_inner) = view.chosen_name();
        terminal.draw(|frame| draw::draw(frame, view)).context("the terminal")?;
        if !event::poll(ROUND).context("the terminal")? {
            continue;
        }
        let Event::Key(key) = event::read().context("the terminal")? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Down | KeyCode::Char('j') => view.choose_next(),
            KeyCode::Up | KeyCode::Char('k') => view.choose_previous(),
            _ => {}
        }
    }
}
