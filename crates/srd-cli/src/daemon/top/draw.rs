//! Layout of the live view: facts, peers, paths of the selected peer, flows.

use super::view::View;
use crate::daemon::show::{complaint as complaint_of, express, micros, passing_paths, span};
use crate::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, Paragraph, Row, Table, TableState};
use srd_daemon::config::Mode;
use srd_daemon::snapshot::{PathSnapshot, PeerSnapshot, PeerState};

/// Columns of the terminal for the bar of one path, including the gap.
const BAR_COLUMNS: u16 = 3;

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let rows = u16::try_from(view.now.peers.len()).unwrap_or(u16::MAX);
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(rows.saturating_add(2).min(frame.area().height / 3).max(3)),
        Constraint::Length(9),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .split(frame.area());
    facts(frame, areas[0], view);
    peers(frame, areas[1], view);
    paths(frame, areas[2], view);
    flows(frame, areas[3], view);
    let keys = Line::from(" q quit   up, down choose a peer");
    frame.render_widget(keys.style(Style::new().add_modifier(Modifier::DIM)), areas[4]);
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

fn facts(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let now = &view.now;
    let protection = if now.encrypted { "encrypted" } else { "NOT ENCRYPTED" };
    let up = span(now.uptime_s);
    let (name, about) = match now.mode {
        Mode::Cloud if now.is_alone() => ("instances", format!("  no other hosts, up {up}")),
        Mode::Cloud => ("instances", format!("  {protection}, up {up}")),
        _ => (now.interface.as_str(), format!("  {protection}, MTU {}, up {up}", now.mtu)),
    };
    let total = |of: fn(&PeerSnapshot) -> u64| now.peers.iter().map(of).sum::<u64>() as f64;
    let sent = view.per_second(|s| s.counters.ena_srd_tx_pkts);
    let again = view.per_second(|s| s.counters.retransmissions);
    let second = Line::from(vec![
        "sent ".into(),
        bold(units::rate(total(|p| p.tx_bps))),
        "   received ".into(),
        bold(units::rate(total(|p| p.rx_bps))),
        "   over SRD ".into(),
        bold(format!("{sent:.0} pkt/s")),
        "   again ".into(),
        bold(format!("{again:.0} /s")),
    ]);
    let complaint = view.complaint.as_ref().map(|why| format!("no news: {why}"));
    let third = match complaint.or_else(|| now.controller.as_ref().and_then(complaint_of)) {
        Some(why) => Line::styled(why, Style::new().fg(Color::Red)),
        None => Line::default(),
    };
    let first = Line::from(vec![bold(name), about.into()]);
    frame.render_widget(Paragraph::new(vec![first, second, third]), area);
}

fn peers(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let row = |peer: &PeerSnapshot| {
        let color = match peer.state {
            PeerState::Up => Color::Green,
            PeerState::Connecting => Color::Yellow,
            PeerState::Down => Color::Red,
        };
        Row::new([
            Line::from(peer.name.clone()),
            Line::styled(peer.state.to_string(), Style::new().fg(color)),
            express(peer).into(),
            Line::from(units::rate(peer.tx_bps as f64)).right_aligned(),
            Line::from(units::rate(peer.rx_bps as f64)).right_aligned(),
            Line::from(micros(peer.rtt_us)).right_aligned(),
            Line::from(micros(peer.queue_delay_us)).right_aligned(),
            Line::from(peer.retransmissions.to_string()).right_aligned(),
            Line::from(passing_paths(peer.paths)).right_aligned(),
        ])
    };
    let widths = [16, 10, 20, 11, 11, 9, 9, 8, 8].map(Constraint::Length);
    let names =
        ["peer", "state", "express", "sent", "received", "rtt", "queueing", "again", "paths"];
    let heads = names.iter().enumerate().map(|(at, name)| {
        let line = Line::from(*name);
        if at < 3 { line } else { line.right_aligned() }
    });
    let table = Table::new(view.now.peers.iter().map(row), widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::DIM)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut chosen = TableState::new().with_selected(Some(view.row));
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn paths(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let packets = view.path_packets();
    let name = view.peer.as_ref().map_or("", |peer| peer.name.as_str());
    let fits = usize::from(area.width / BAR_COLUMNS);
    let more = if packets.len() > fits {
        format!(" (the first {fits} of {})", packets.len())
    } else {
        String::new()
    };
    let title = format!(" packets by path to {name}{more}: green good, yellow skipped, red bad ");
    let bar = |(path, count): &(&PathSnapshot, u64)| {
        let color = match path.state.as_str() {
            "good" => Color::Green,
            "skip" => Color::Yellow,
            "assumed-bad" => Color::Red,
            _ => Color::DarkGray,
        };
        // A path without packets still gets a short bar, so that the colour of its state is
        // visible.
        let bar = Bar::default().value((*count).max(1)).text_value(String::new());
        bar.label(path.path.to_string()).style(Style::new().fg(color))
    };
    let bars: Vec<Bar<'_>> = packets.iter().take(fits).map(bar).collect();
    let chart = BarChart::default()
        .block(Block::bordered().title(title))
        .bar_width(BAR_COLUMNS - 1)
        .bar_gap(1)
        .data(BarGroup::default().bars(&bars));
    frame.render_widget(chart, area);
}

fn flows(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let row = |flow: &srd_daemon::snapshot::FlowSnapshot| {
        let way = if flow.direction == "tx" { "to" } else { "from" };
        Row::new([
            Line::from(flow.protocol.clone()),
            flow.source.clone().into(),
            flow.destination.clone().into(),
            format!("{way} {}", flow.peer).into(),
            if flow.srd { "SRD" } else { "plain" }.into(),
            Line::from(units::rate(flow.bps as f64)).right_aligned(),
        ])
    };
    let widths = [6, 28, 28, 16, 6, 11].map(Constraint::Length);
    let names = ["flow", "source", "destination", "peer", "way"].map(Line::from);
    let heads = names.into_iter().chain([Line::from("rate").right_aligned()]);
    let table = Table::new(view.now.flows.iter().map(row), widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::DIM)));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use srd_daemon::snapshot::{FlowSnapshot, PathCounts, Snapshot};

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn view(paths: u16) -> View {
        let path = |path: u16| PathSnapshot {
            path,
            state: if path == 1 { "skip" } else { "good" }.into(),
            sent_pkts: u64::from(path) * 10,
            ..PathSnapshot::default()
        };
        let peer = PeerSnapshot {
            name: "b".into(),
            state: PeerState::Up,
            tx_bps: 9_876_000_000,
            paths: PathCounts { good: paths, passing: paths, ..PathCounts::default() },
            path_reports: (0..paths).map(path).collect(),
            ..PeerSnapshot::default()
        };
        let flow = FlowSnapshot { destination: "10.77.0.2:80".into(), ..FlowSnapshot::default() };
        let snapshot = Snapshot {
            interface: "srd0".into(),
            peers: vec![peer.clone()],
            flows: vec![flow],
            ..Snapshot::default()
        };
        let mut view = View::new(snapshot.clone());
        view.take(snapshot, Some(peer));
        view
    }

    #[test]
    fn peers_paths_and_flows_are_drawn() {
        let text = drawn(&view(8), 120, 30);
        for word in ["srd0", "NOT ENCRYPTED", "9.88 Gb/s", "8/8", "path to b", "10.77.0.2:80"] {
            assert!(text.contains(word), "`{word}` is not in\n{text}");
        }
        assert!(text.contains('█'), "{text}");
    }

    #[test]
    fn more_paths_than_fit_are_said_to_be_more() {
        let text = drawn(&view(256), 120, 30);
        assert!(text.contains("the first 40 of 256"), "{text}");
    }

    #[test]
    fn a_complaint_is_shown_and_no_size_is_too_small() {
        let mut view = view(64);
        view.complain("the daemon has ended".into());
        assert!(drawn(&view, 100, 30).contains("no news: the daemon has ended"));
        for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 100)] {
            drawn(&view, width, height);
        }
        drawn(&View::new(Snapshot::default()), 80, 24);
    }
}
