//! The file that describes a cloud: opened once, and checked if a controller has sent its content.

use std::fs::{File, Metadata};
use std::io::Seek;
use std::path::Path;

use anyhow::{Context, Result, bail};
use srd_trust::{private, sealed};
use srd_vpc::object::PUBLIC_POOL;
use srd_vpc_file::{FILE_BYTES_MAX, TypePlaces, VpcFile};

/// The file of a cloud, read once.
#[derive(Debug)]
pub(crate) struct CloudFile {
    /// Owner and mode of the file.
    pub(crate) facts: Metadata,
    /// The text from which `file` was read, for a process that may not have the file itself. Its
    /// position is its beginning.
    pub(crate) copy: File,
    pub(crate) file: VpcFile,
}

/// Reads the file of a cloud. The call never waits for a writer, and follows a link only if no
/// other user can change the path ([`private::open`]). `quotes`: whether an error may quote the
/// text of the file.
///
/// # Errors
/// The path leads to no regular file, the file cannot be read, or its text is wrong.
pub(crate) fn open(path: &Path, quotes: bool) -> Result<CloudFile> {
    let shown = path.display();
    let opened = private::open(path).with_context(|| shown.to_string())?;
    let opened = opened.with_context(|| format!("{shown} is no regular file"))?;
    let failed = || format!("{shown} cannot be read");
    let facts = opened.metadata().with_context(failed)?;
    let mut copy = sealed::copy(opened, FILE_BYTES_MAX + 1).with_context(failed)?;
    let read = srd_vpc_file::read_from(copy.try_clone()?, path);
    // The two descriptors have one position.
    copy.rewind()?;
    match read {
        Ok(file) if quotes => Ok(CloudFile { facts, copy, file }),
        // An error about an instance type would quote its line.
        Ok(file) => {
            Ok(CloudFile { facts, copy, file: VpcFile { types: TypePlaces::default(), ..file } })
        }
        Err(error) if quotes => Err(error.into()),
        Err(error) => match &error.place {
            Some(at) => bail!("{shown}:{}:{}: this is no file of a cloud", at.line, at.column),
            None => bail!("{shown} is no file of a cloud"),
        },
    }
}

/// Checks that a file from a controller chooses no directory of this machine, and no public address
/// outside of [`PUBLIC_POOL`], from which a controller takes public addresses. The card adds a
/// route for each public address, and this machine may need any other address. `host` is the name
/// of this host in the file. Unless it accepts pods (`pods`), the file chooses no pod for an
/// instance of this host.
pub(crate) fn check_of_controller(file: &VpcFile, (host, pods): (&str, bool)) -> Result<()> {
    if !file.world.flow_logs.is_empty() {
        bail!("a controller cannot choose directories for flow logs on this host");
    }
    let mut instances = file.world.instances.values();
    let is_here = |of: &str| of == host;
    let own_pod = instances.find(|of| of.pod.is_some() && of.host.as_deref().is_none_or(is_here));
    if let Some(of) = own_pod.filter(|_| !pods) {
        bail!(
            "`{}` is in a pod, and a controller cannot choose pods of this host: \
             [enrol.instances] has no `pods = true`",
            of.name
        );
    }
    let mut publics = file.world.addresses.values().map(|address| address.public);
    if let Some(public) = publics.find(|public| !PUBLIC_POOL.contains(public)) {
        bail!("a controller cannot choose the public address {public}, outside of {PUBLIC_POOL}");
    }
    Ok(())
}

/// Refuses a file without instances if those of another file would end (`ends_some`), because an
/// editor or a failure of the machine may have cut the file off.
pub(crate) fn check_instances(file: &VpcFile, ends_some: bool) -> Result<()> {
    if ends_some && file.world.instances.is_empty() {
        bail!(
            "the file has no instances, and all that run would end: it may have been cut off. If \
             they are to end, run `srd card apply --remove-all FILE`"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use std::io::Read;

    const CLOUD: &str = "[vpc.a]\ncidr = [\"10.0.0.0/16\"]\n";

    fn check(text: &str) -> Result<(), String> {
        check_with(text, false)
    }

    fn check_with(text: &str, pods: bool) -> Result<(), String> {
        let file = srd_vpc_file::parse(&format!("{CLOUD}{text}"), Path::new("a.toml"));
        check_of_controller(&file.unwrap(), ("h", pods)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_controller_chooses_no_directory_and_no_pod_of_a_host() {
        let instance = "[instance.i]\ntype = \"c7i.large\"\n";
        check(instance).unwrap();
        let pod = format!("{instance}pod = \"p\"\n");
        assert!(check(&pod).unwrap_err().contains("pods = true"));
        assert!(check(&format!("{pod}host = \"h\"\n")).unwrap_err().contains("pods"));
        check(&format!("{pod}host = \"other\"\n")).unwrap();
        check_with(&format!("{pod}host = \"h\"\n"), true).unwrap();
        let log = "[flow_log.l]\nvpc = \"a\"\ndirectory = \"/etc\"\n";
        assert!(check(log).unwrap_err().contains("directories"));
    }

    /// A controller made hosts route any address into an instance.
    #[test]
    fn regression_a_controller_chooses_public_addresses_of_its_block_only() {
        let address = |public: &str| format!("[elastic_address.e]\npublic = \"{public}\"\n");
        for own in ["198.18.0.0", "198.19.255.255"] {
            check(&address(own)).unwrap();
        }
        for other in ["198.17.255.255", "198.20.0.0", "192.0.2.1", "8.8.8.8"] {
            assert!(check(&address(other)).unwrap_err().contains(other), "{other}");
        }
    }

    /// A file that was cut off after its first lines ended all instances.
    #[test]
    fn regression_a_file_that_was_cut_off_ends_no_instances() {
        let whole = format!("region = \"us-east-1\"\n{CLOUD}[instance.i]\ntype = \"c7i.large\"\n");
        for length in [whole.find('[').unwrap(), whole.find("[instance").unwrap()] {
            let file = srd_vpc_file::parse(&whole[..length], Path::new("a.toml")).unwrap();
            check_instances(&file, false).unwrap();
            let error = check_instances(&file, true).unwrap_err().to_string();
            assert!(error.contains("--remove-all"), "{error}");
        }
        let file = srd_vpc_file::parse(&whole, Path::new("a.toml")).unwrap();
        check_instances(&file, true).unwrap();
    }

    #[test]
    fn the_copy_is_what_was_read_and_an_error_quotes_only_if_it_may() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        std::fs::write(&path, CLOUD).unwrap();
        let mut copy = open(&path, false).unwrap().copy;
        std::fs::write(&path, "hush = 1\n").unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, CLOUD);
        // No process can change the text afterwards, not even one that has the copy.
        std::io::Write::write_all(&mut copy, b"x").unwrap_err();
        let error = |quotes| format!("{:#}", open(&path, quotes).unwrap_err());
        assert!(error(true).contains("hush") && !error(false).contains("hush"));
        // A plain `open` of a pipe waits for its writer.
        let pipe = directory.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        for other in [pipe.as_path(), directory.path()] {
            let error = open(other, true).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
    }
}
