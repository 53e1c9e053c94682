//! Address and host names of the metrics server.

use toml::Spanned;

use super::address::socket_address;
use super::file::MetricsTable;
use super::{ConfigError, HOST_NAMES_MAX, Metrics};
use srd_config::Source;

type Result<T> = std::result::Result<T, ConfigError>;

pub(super) fn metrics(source: &Source<'_>, spanned: &Spanned<MetricsTable>) -> Result<Metrics> {
    let example = "\"127.0.0.1:9471\"";
    let table = spanned.as_ref();
    let Some(text) = &table.listen else {
        let remedy = format!("add listen = {example}, or take [metrics] out");
        return Err(source.error(Some(spanned.span()), "[metrics] has no `listen`", remedy));
    };
    let listen = socket_address(source, text, example)?;
    let allow_remote = table.allow_remote.unwrap_or(false);
    if !listen.ip().is_loopback() && !allow_remote {
        let what = format!("others than this machine could read the metrics at {listen}");
        let remedy = format!("listen = {example}; if they shall, add allow_remote = true");
        return Err(source.error(Some(text.span()), what, remedy));
    }
    let host_names = host_names(source, &table.host_names)?;
    Ok(Metrics { listen, allow_remote, host_names })
}

fn host_names(source: &Source<'_>, names: &[Spanned<String>]) -> Result<Vec<String>> {
    if let Some(name) = names.get(HOST_NAMES_MAX) {
        let what = format!("there are more than {HOST_NAMES_MAX} names");
        return Err(source.error(Some(name.span()), what, "take some out"));
    }
    let name = |name: &Spanned<String>| {
        srd_http::host_name(name.as_ref()).ok_or_else(|| {
            let what = format!("`{}` is no name of a host", name.as_ref());
            let remedy = "write a whole name without a port, as in \"node7.rack.example\"";
            source.error(Some(name.span()), what, remedy)
        })
    };
    names.iter().map(name).collect()
}
