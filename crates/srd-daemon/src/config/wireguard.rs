//! A configuration of WireGuard's in the form of `srd.toml`.
//!
//! ```text
//!   [Interface]                       [interface]
//!   Address = 10.0.0.1/24        -->  address = ["10.0.0.1/24"]
//!   PrivateKey = ...                  private_key_file = "/etc/srd/private.key"
//!   ListenPort = 51820                listen = "[::]:51820"
//!   [Peer]                            [[peer]]
//!   PublicKey = ...                   public_key = "..."
//!   AllowedIPs = 10.0.0.2/32          allowed = ["10.0.0.2/32"]
//!   Endpoint = b.example:51820        endpoint = "b.example:51820"
//! ```
//!
//! The keys of both are of one kind and stay the same. Secrets are not in the text that is made:
//! it names files, and comments in it say how to fill them. What has no counterpart becomes a
//! comment, too, so that nothing is lost without a word.

use std::fmt::Write as _;

/// The port where none is given.
const PORT: &str = "7471";

/// Whether a text is a file of WireGuard's: its tables begin with capitals.
pub fn is_meant(text: &str) -> bool {
    let is_table = |line: &str| line.eq("[Interface]") || line.eq("[Peer]");
    text.lines().map(str::trim).any(is_table)
}

/// What a file is called, and where the keys shall be.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The file that is read, for the commands in comments.
    pub file: &'a str,
    /// The name of the interface.
    pub interface: &'a str,
    /// The file that the private key shall be in.
    pub key_file: &'a str,
}

/// The same in our own form.
///
/// # Errors
/// The line that is none of WireGuard's.
pub fn convert(text: &str, names: Names<'_>) -> Result<String, String> {
    let mut out = format!("# From {}.\n", quoted(names.file));
    let (mut table, mut secrets, mut listens) = ("", 0, false);
    // WireGuard takes several lines of a list.
    let mut list = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match line {
            "[Interface]" => {
                table = line;
                let _ = writeln!(out, "[interface]\nname = {:?}", names.interface);
                continue;
            }
            "[Peer]" => {
                finish(&mut out, table, listens, &mut list);
                table = line;
                let _ = writeln!(out, "\n[[peer]]");
                continue;
            }
            _ => {}
        }
        let (key, value) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|_| !table.is_empty())
            .ok_or_else(|| format!("line {number} of {} is none of WireGuard's", names.file))?;
        let known = key.to_ascii_lowercase();
        listens |= table == "[Interface]" && known == "listenport";
        let line = match (table, known.as_str()) {
            ("[Interface]", "address") | ("[Peer]", "allowedips") => {
                list.extend(value.split(',').map(|item| format!("{:?}", item.trim())));
                continue;
            }
            ("[Interface]", "listenport") => format!("listen = \"[::]:{value}\""),
            ("[Interface]", "mtu") => format!("# mtu = {value}  # found by itself, usually larger"),
            ("[Interface]", "privatekey") => private_key(names),
            (_, "publickey") => format!("public_key = {value:?}"),
            (_, "endpoint") => format!("endpoint = {value:?}"),
            (_, "presharedkey") => {
                secrets += 1;
                preshared_key(names, secrets)
            }
            // Whatever it is, it may be a secret or a command: its name is enough.
            _ => format!("# {key} of {} is not taken over", quoted(names.file)),
        };
        let _ = writeln!(out, "{line}");
    }
    finish(&mut out, table, listens, &mut list);
    Ok(out)
}

/// Ends a table: with its list, and with what our own interface needs and WireGuard's may be
/// without.
fn finish(out: &mut String, table: &str, listens: bool, list: &mut Vec<String>) {
    if !list.is_empty() {
        let key = if table == "[Interface]" { "address" } else { "allowed" };
        let _ = writeln!(out, "{key} = [{}]", list.join(", "));
        list.clear();
    }
    if table == "[Interface]" && !listens {
        let _ = writeln!(out, "listen = \"[::]:{PORT}\"");
    }
}

/// The command that prints the values of a key, without what follows them in a line.
fn values_of(key: &str, file: &str) -> String {
    format!(r"sed -n 's/^[ \t]*{key}[ \t]*=[ \t]*\([^ \t#]*\).*/\1/Ip' {}", quoted(file))
}

/// A name as a shell takes it for one word, whatever is in it; on one line in any case.
fn quoted(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", name.replace('\'', r"'\''"))
}

fn private_key(Names { file, key_file, .. }: Names<'_>) -> String {
    let (values, to) = (values_of("PrivateKey", file), quoted(key_file));
    format!(
        "# The key stays the same; as root:\n\
         #   {values} | install -m 0600 /dev/stdin {to}\n\
         # and for the package's unit, which runs as a user of its own: chown srd {to}\n\
         private_key_file = {key_file:?}"
    )
}

/// `number` counts the preshared keys of the file: not every peer needs to have one.
fn preshared_key(Names { file, key_file, .. }: Names<'_>, number: u32) -> String {
    let to = format!("{key_file}.psk{number}");
    format!(
        "#   {} | sed -n {number}p | install -m 0600 /dev/stdin {}\n\
         preshared_key_file = {to:?}",
        values_of("PresharedKey", file),
        quoted(&to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::keys::SecretKey;
    use std::os::unix::fs::PermissionsExt;

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn a_file_of_wireguards_becomes_one_that_is_right_and_holds_no_secret() {
        let secret = SecretKey::draw_private().unwrap().expose();
        let text = format!(
            "# mine\n[Interface]\nAddress = 10.0.0.1/24, fd00::1/64\nPrivateKey = {secret}\n\
             PostUp = iptables -A x\n\n[Peer]\nPublicKey = {KEY} # b\n\
             AllowedIPs = 10.0.0.2/32,fd00::2/128\nEndpoint = b.example:7471\n\
             PersistentKeepalive = 25\n"
        );
        assert!(is_meant(&text) && !is_meant("[interface]\n[[peer]]\n"));
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("private.key");
        std::fs::write(&key, &secret).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let key_file = key.to_str().unwrap();
        let names = Names { file: "wg0.conf", interface: "srd0", key_file };
        let made = convert(&text, names).unwrap();
        assert!(!made.contains(&secret) && !made.contains("iptables"), "{made}");
        assert!(made.contains("# PostUp of 'wg0.conf' is not taken over"), "{made}");
        let config = Config::parse(&made, &directory.path().join("srd0.toml")).expect(&made);
        assert_eq!((config.interface.listen.port(), config.interface.address.len()), (7471, 2));
        let [peer] = config.peers.as_slice() else { panic!("one peer") };
        assert_eq!(peer.allowed.len(), 2);
        assert_eq!(peer.host.as_ref().unwrap().host, "b.example");
        assert!(convert("[Interface]\nrubbish\n", names).unwrap_err().contains("line 2"));
        assert!(convert("PrivateKey = x\n", names).is_err());
    }

    #[test]
    fn regression_a_list_in_several_lines_is_one_list() {
        let text = format!(
            "[Interface]\nAddress = 10.0.0.1/24\nAddress = fd00::1/64\nPrivateKey = x\n\
             [Peer]\nAllowedIPs = 10.0.0.2/32, 10.1.0.0/16\nPublicKey = {KEY}\n\
             AllowedIPs = fd00::2/128\n"
        );
        let names = Names { file: "wg0.conf", interface: "srd0", key_file: "/k" };
        let made = convert(&text, names).unwrap();
        assert!(made.contains(r#"address = ["10.0.0.1/24", "fd00::1/64"]"#), "{made}");
        let allowed = r#"allowed = ["10.0.0.2/32", "10.1.0.0/16", "fd00::2/128"]"#;
        assert!(made.contains(allowed), "{made}");
    }

    #[test]
    fn regression_each_preshared_key_goes_to_the_file_of_its_own_peer() {
        let text = format!(
            "[Interface]\nAddress = 10.0.0.1/24\nPrivateKey = x\n\
             [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32\n\
             [Peer]\nPublicKey = {KEY}\nPresharedKey = FIRST\nAllowedIPs = 10.0.0.3/32\n\
             [Peer]\nPublicKey = {KEY}\npresharedkey=SECOND\nAllowedIPs = 10.0.0.4/32\n"
        );
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("wg's 0.conf");
        std::fs::write(&file, text.as_bytes()).unwrap();
        let key_file = directory.path().join("private.key");
        let names = Names {
            file: file.to_str().unwrap(),
            interface: "srd0",
            key_file: key_file.to_str().unwrap(),
        };
        let made = convert(&text, names).unwrap();
        // What the comments say, done as they say it.
        let commands = made.lines().filter_map(|line| line.strip_prefix("#   sed"));
        for command in commands {
            let mut shell = std::process::Command::new("sh");
            let done = shell.arg("-c").arg(format!("sed{command}")).status().unwrap();
            assert!(done.success(), "{command}");
        }
        let mut keys = Vec::new();
        for line in made.lines().filter(|line| line.contains("_key_file = ")) {
            let path = line.split('"').nth(1).unwrap();
            keys.push(std::fs::read_to_string(path).unwrap().trim().to_owned());
        }
        assert_eq!(keys, ["x", "FIRST", "SECOND"]);
    }
}
