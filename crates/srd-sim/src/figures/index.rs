//! An HTML page with all figures, each with the paper's statement.

use std::fmt::Write as _;

use super::{Drawn, Figure};
use srd_chart::escape;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem}img{max-width:100%}dt{font-weight:600}dd{margin:0 0 .6rem 0}";

/// Returns the HTML page.
pub fn index_html(figures: &[(Figure, Drawn)]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <title>Figures 2 to 6 of the SRD paper</title>\n<style>{STYLE}</style>\n\
         <h1>Figures 2 to 6 of the SRD paper, from the simulator</h1>\n\
         <p>Links of 100 Gb/s, packets of 4,150 bytes, drop-tail queues of 5 bandwidth-delay \
         products; TCP's least timeout is 50 ms. <b>efa</b>: messages of the Messaging Layer. \
         <b>srd</b>: datagrams of the endpoint. <b>express</b>: TCP of guests whose cards carry it \
         over SRD. <b>tcp</b>: the same TCP over the network as it is. Ideal: the payload at the \
         bottleneck's speed and a round trip.</p>\n"
    );
    for (figure, drawn) in figures {
        let _ = writeln!(page, "<h2>Figure {}: {}</h2>", figure.number, escape(figure.title));
        let _ = writeln!(page, "<dl><dt>The paper</dt><dd>{}</dd>", escape(figure.paper));
        let _ = writeln!(page, "<dt>Here</dt>");
        for sentence in &drawn.ours {
            let _ = writeln!(page, "<dd>{}</dd>", escape(sentence));
        }
        if !figure.note.is_empty() {
            let _ = writeln!(page, "<dt>Note</dt><dd>{}</dd>", escape(figure.note));
        }
        page.push_str("</dl>\n");
        for chart in &drawn.charts {
            let alt = escape(figure.title);
            let _ = writeln!(page, "<p><img src=\"{}\" alt=\"{alt}\"></p>", chart.name);
        }
        let table = &drawn.table.name;
        let _ = writeln!(page, "<p><a href=\"{table}\">{table}</a></p>");
    }
    page.push_str("</html>\n");
    page
}
