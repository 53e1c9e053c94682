//! The access key, in the file that `srd control up --key-file` writes: lines `NAME=VALUE` with the
//! names of AWS's environment variables.

use std::fmt;
use std::io::Read;
use std::path::Path;

use srd_trust::private;

/// Largest size of the file in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// An access key, and the endpoint and the region that its file may name.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// Identifier of the access key.
    pub id: String,
    /// The secret.
    pub(crate) secret: String,
    /// Address of the EC2 API.
    pub endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Access {
    /// Reads the file.
    ///
    /// # Errors
    /// A text for the user, if the file cannot be read, if other users may read it, or if it has no
    /// key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error: std::io::Error| format!("the key file {shown}: {error}");
        let Some(file) = private::open(path).map_err(failed)? else {
            return Err(format!("the key file {shown} is no regular file"));
        };
        if let Err(exposed) = private::check(&file, None).map_err(failed)? {
            return Err(exposed.fault(path).to_string());
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
            return Err(format!("the key file {shown} has more than {FILE_BYTES_MAX} bytes"));
        }
        Self::parse(&text).map_err(|name| format!("the key file {shown} has no line {name}=..."))
    }

    /// Reads the text of the file. The error is the name of the missing line.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let value = |name: &str| {
            let of = |line: &str| {
                let line = line.trim();
                let line = line.strip_prefix("export ").unwrap_or(line);
                let value = line.strip_prefix(name)?.strip_prefix('=')?;
                Some(value.trim_matches(['"', '\'']).to_owned())
            };
            text.lines().find_map(of).filter(|value| !value.is_empty())
        };
        Ok(Self {
            id: value("AWS_ACCESS_KEY_ID").ok_or("AWS_ACCESS_KEY_ID")?,
            secret: value("AWS_SECRET_ACCESS_KEY").ok_or("AWS_SECRET_ACCESS_KEY")?,
            endpoint: value("AWS_ENDPOINT_URL"),
            region: value("AWS_DEFAULT_REGION"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "# a key\nAWS_ACCESS_KEY_ID=SRD1\nexport AWS_SECRET_ACCESS_KEY='hush'\n\
                        AWS_ENDPOINT_URL=http://127.0.0.1:4599\n";

    #[test]
    fn a_private_file_with_a_key_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.env");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Access::read(&path)
        };
        let access = read(TEXT, 0o600).unwrap();
        assert_eq!((access.id.as_str(), access.secret.as_str()), ("SRD1", "hush"));
        assert_eq!(access.endpoint.as_deref(), Some("http://127.0.0.1:4599"));
        assert_eq!(access.region, None);
        assert!(!format!("{access:?}").contains("hush"));
        let error = read(TEXT, 0o644).unwrap_err();
        assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
        let error = read("AWS_ACCESS_KEY_ID=SRD1\n", 0o600).unwrap_err();
        assert!(error.contains("no line AWS_SECRET_ACCESS_KEY="), "{error}");
        let filled = |bytes: u64| {
            let rest = usize::try_from(bytes).unwrap() - TEXT.len();
            format!("{TEXT}{}", "#".repeat(rest))
        };
        read(&filled(FILE_BYTES_MAX), 0o600).unwrap();
        assert!(read(&filled(FILE_BYTES_MAX + 1), 0o600).unwrap_err().contains("more than"));
        fs::remove_file(&path).unwrap();
        assert!(Access::read(&path).unwrap_err().contains("key.env"));
        assert!(Access::read(directory.path()).unwrap_err().contains("no regular file"));
    }
}
