//! Requests to the control plane through the daemon `srd up` of this machine, which has enrolled
//! there. They need no access key, and concern pods of this machine only.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use srd_daemon::control::{Client, ClientError, RefusalKind, Request};
use srd_enrol::{PodAnswer, PodLaunch, PodRequest};

use super::{ATTEMPTS, ApiError, Cloud, Launch, Launched, Select, tags};

/// Longest time for which a request is repeated that the daemon is too busy to take.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two such attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The daemon of this machine.
#[derive(Clone, Debug)]
pub struct Node {
    socket: PathBuf,
}

impl Node {
    /// The daemon that serves this control socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request, and waits for its answer. Without an answer, it is sent again.
    fn ask(&self, pod: PodRequest) -> Result<PodAnswer, ApiError> {
        let request = Request::Pod { pod };
        let until = Instant::now() + BUSY_WAIT_MAX;
        let mut left = ATTEMPTS;
        loop {
            let asked = Client::connect(&self.socket).and_then(|client| client.ask(&request));
            let error = match asked {
                Ok(PodAnswer::Refused { code, message }) => {
                    return Err(ApiError::Refused { code, message });
                }
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match &error {
                ClientError::Refused(refusal) if refusal.kind == RefusalKind::Busy => {
                    if Instant::now() < until {
                        thread::sleep(BUSY_PAUSE);
                        continue;
                    }
                }
                ClientError::Refused(refusal) if refusal.kind == RefusalKind::Refused => left -= 1,
                ClientError::Io(..) => left -= 1,
                ClientError::NotRunning(_) if left == ATTEMPTS => {
                    return Err(ApiError::Down(error.to_string()));
                }
                ClientError::NotRunning(_) => left = 0,
                _ => return Err(ApiError::Settings(error.to_string())),
            }
            if left == 0 || Instant::now() >= until {
                return Err(ApiError::Silent(error.to_string()));
            }
        }
    }
}

/// The error for an answer to another request.
fn other() -> ApiError {
    ApiError::Silent("the control plane has answered another request".to_owned())
}

/// Tags in the form of a request.
fn owned<'a>(tags: impl IntoIterator<Item = (&'a str, String)>) -> Vec<(String, String)> {
    tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Cloud for Node {
    fn launch(&self, launch: &Launch<'_>) -> Result<Launched, ApiError> {
        let settings = launch.settings;
        let request = PodLaunch {
            token: launch.token.to_owned(),
            subnet: settings.subnet.clone(),
            groups: settings.groups.clone(),
            address: settings.address,
            ipv6: settings.ipv6,
            instance_type: settings.instance_type.clone(),
            tags: owned(tags(launch)),
        };
        match self.ask(PodRequest::Launch(request))? {
            PodAnswer::Launched { instance, interface, address, mac } => {
                Ok(Launched { instance, interface, address, mac })
            }
            _ => Err(other()),
        }
    }

    fn terminate(&self, instance: &str) -> Result<(), ApiError> {
        match self.ask(PodRequest::Terminate { instance: instance.to_owned() })? {
            PodAnswer::Terminated => Ok(()),
            _ => Err(other()),
        }
    }

    fn instances(&self, select: Select<'_>) -> Result<Vec<(String, String)>, ApiError> {
        let tags = select.tags().into_iter().map(|(key, value)| (key, value.to_owned()));
        match self.ask(PodRequest::Instances { tags: owned(tags) })? {
            PodAnswer::Instances { instances } => Ok(instances),
            _ => Err(other()),
        }
    }

    fn free_addresses(&self, subnet: &str) -> Result<u64, ApiError> {
        match self.ask(PodRequest::FreeAddresses { subnet: subnet.to_owned() })? {
            PodAnswer::FreeAddresses { count } => Ok(count),
            _ => Err(other()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;

    /// A daemon that gives these answers, one on each connection. Returns the requests.
    fn daemon(answers: Vec<String>, ask: impl FnOnce(&Node)) -> Vec<Request> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("srd0.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let serves = std::thread::spawn(move || {
            let serve = |answer: String| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
                serde_json::from_str(&line).unwrap()
            };
            answers.into_iter().map(serve).collect()
        });
        ask(&Node::new(&socket));
        serves.join().unwrap()
    }

    fn ok(answer: &PodAnswer) -> String {
        serde_json::json!({ "ok": answer }).to_string()
    }

    fn refusal(kind: &str) -> String {
        format!("{{\"error\":{{\"kind\":\"{kind}\",\"text\":\"why\"}}}}")
    }

    #[test]
    fn a_request_is_sent_again_while_the_daemon_is_busy_and_without_an_answer() {
        let answers = vec![refusal("busy"), refusal("refused"), ok(&PodAnswer::Terminated)];
        let sent = daemon(answers, |node| node.terminate("i-1").unwrap());
        let pod = PodRequest::Terminate { instance: "i-1".to_owned() };
        assert_eq!(sent, vec![Request::Pod { pod }; 3]);
        let answers = vec![refusal("refused"); 2];
        daemon(answers, |node| {
            assert!(matches!(node.terminate("i-1"), Err(ApiError::Silent(_))));
        });
    }

    #[test]
    fn errors_keep_their_codes_and_wrong_settings_are_told_apart() {
        let (code, message) = ("InvalidSubnetID.NotFound".to_owned(), "gone".to_owned());
        let answer = ok(&PodAnswer::Refused { code: code.clone(), message: message.clone() });
        daemon(vec![answer], |node| {
            let error = node.free_addresses("subnet-1").unwrap_err();
            assert_eq!(error, ApiError::Refused { code, message });
        });
        daemon(vec![refusal("bad-request")], |node| {
            let error = node.instances(Select::Pod("p")).unwrap_err();
            assert_eq!(error, ApiError::Settings("why".to_owned()));
        });
        daemon(vec![ok(&PodAnswer::Terminated)], |node| {
            assert!(matches!(node.instances(Select::Pod("p")), Err(ApiError::Silent(_))));
        });
        let nowhere = Node::new(Path::new("/missing/srd0.sock"));
        assert!(matches!(nowhere.terminate("i-1"), Err(ApiError::Down(_))));
    }
}
