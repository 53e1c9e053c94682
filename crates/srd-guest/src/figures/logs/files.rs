//! Files of flow logs, with names in the format of EC2.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use srd_card::observe::InterfaceAttributes;
use srd_vpc::id::FlowLogId;

use crate::helper::Helper;

/// Maximum number of files of one log that begin in one minute.
const FILES_MAX: u32 = 10_000;

/// Creates a new file of a flow log in a directory, which is created if it is missing. No existing
/// file is overwritten.
pub(crate) fn create(directory: &Path, stem: &str, ending: &str) -> io::Result<(File, PathBuf)> {
    fs::create_dir_all(directory)?;
    for number in 0..FILES_MAX {
        let path = directory.join(format!("{stem}_{number}.{ending}"));
        // A complete file has lost this ending.
        if ending.ends_with(".part") && path.with_extension("").exists() {
            continue;
        }
        match OpenOptions::new().create_new(true).read(true).write(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files of this minute"))
}

/// Opens files of flow logs through the helper, or in this process (`None`, in tests).
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(Option<Helper>);

/// An open file of a flow log, and its name.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    directory: String,
    name: String,
}

impl Files {
    pub(crate) fn of(helper: Helper) -> Self {
        Self(Some(helper))
    }

    /// Creates a new file of a flow log.
    pub(crate) fn create(
        &self,
        directory: &str,
        facts: &InterfaceAttributes,
        log: FlowLogId,
        ending: &str,
    ) -> io::Result<Opened> {
        let stem = stem(facts, log, SystemTime::now());
        let (file, name) = match &self.0 {
            Some(helper) => helper.log(directory, stem, ending)?,
            None => {
                let (file, path) = create(Path::new(directory), &stem, ending)?;
                (file, path.file_name().unwrap_or_default().to_string_lossy().into_owned())
            }
        };
        Ok(Opened { file, directory: directory.to_owned(), name })
    }

    /// Completes a file, which removes the ending `.part` from its name. If `is_whole` is false,
    /// the file is removed.
    pub(crate) fn end(&self, directory: &str, name: String, is_whole: bool) -> io::Result<()> {
        if let Some(helper) = &self.0 {
            return helper.log_ended(directory, name, is_whole);
        }
        let path = Path::new(directory).join(name);
        if is_whole { fs::rename(&path, path.with_extension("")) } else { fs::remove_file(path) }
    }
}

impl Opened {
    /// Writes the complete file. On failure the file is removed.
    pub(crate) fn fill(
        self,
        files: &Files,
        write: impl FnOnce(File) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self { file, directory, name } = self;
        match write(file) {
            Ok(()) => files.end(&directory, name, true),
            Err(error) => {
                let _ = files.end(&directory, name, false);
                Err(error)
            }
        }
    }
}

/// Returns the beginning of a file's name, for example
/// `ACCOUNT_vpcflowlogs_REGION_fl-0123_20261123T1745Z`.
fn stem(facts: &InterfaceAttributes, log: FlowLogId, at: SystemTime) -> String {
    let unix = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, seconds) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    let time = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}Z");
    let parts = [&facts.account, "vpcflowlogs", &facts.region, &log.to_string(), &time];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("_")
}

/// Returns year, month and day of a day since 1970, in the Gregorian calendar. The calculation lets
/// a year begin in March, so that the leap day is its last day.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since the first of March of the year 0
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_have_the_minute_in_utc() {
        let at = |unix| SystemTime::UNIX_EPOCH + Duration::from_secs(unix);
        let facts = InterfaceAttributes {
            account: "123456789010".into(),
            region: "eu-central-1".into(),
            ..InterfaceAttributes::default()
        };
        for (unix, time) in [
            (0, "19700101T0000Z"),
            (951_782_399, "20000228T2359Z"),
            (951_782_400, "20000229T0000Z"),
            (1_709_251_199, "20240229T2359Z"),
            (1_709_251_200, "20240301T0000Z"),
            (1_418_530_010, "20141214T0406Z"),
            (4_107_542_400, "21000301T0000Z"),
        ] {
            let name = stem(&facts, FlowLogId(1), at(unix));
            let id = "fl-00000000000000001";
            assert_eq!(name, format!("123456789010_vpcflowlogs_eu-central-1_{id}_{time}"));
        }
        let bare = stem(&InterfaceAttributes::default(), FlowLogId(1), at(0));
        assert_eq!(bare, "vpcflowlogs_fl-00000000000000001_19700101T0000Z");
    }
}
