use super::super::verdict::tests::case_of;
use super::*;
use crate::experiment::measure::result::Measured;
use srd_chart::check_well_formed;

const PLAIN: [f64; 3] = [246_100_000.0, 247_210_000.0, 248_010_000.0];
const EXPRESS: [f64; 3] = [934_536_978.0, 931_001_000.0, 940_000_000.0];

fn outcome(case: CaseResult) -> Outcome {
    Outcome {
        experiment: "compare",
        summary: SUMMARY,
        about: ABOUT,
        machine: "2 CPUs".into(),
        seed: 7,
        quick: false,
        took_s: 31.0,
        cases: vec![case],
        left_out: Vec::new(),
    }
}

fn page_of(case: CaseResult, place: RunEnvironment<'_>) -> String {
    let html = page(&outcome(case), place);
    check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    for outside in ["http:", "https:", "src=", "href=", "<script"] {
        assert!(!html.contains(outside), "{outside}");
    }
    // The page has no-break spaces between numbers and units; the tests search for normal spaces.
    html.replace('\u{a0}', " ")
}

fn goodput() -> CaseResult {
    case_of("goodput, b/s", "", &PLAIN, &EXPRESS)
}

#[test]
fn regression_the_page_states_the_verdict_first_and_draws_it() {
    let html = page_of(goodput(), RunEnvironment::Lab(&FabricConfig::default()));
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{html}"));
    let verdict = "<p class=\"verdict good\">With ENA Express, goodput is 3.78 times that of plain \
                   (cubic): 935 Mb/s instead of 247 Mb/s.";
    assert!(at("<h1>iperf3: ENA Express beside plain (cubic)</h1>") < at(verdict));
    assert!(at(verdict) < at("ran over each transport"));
    assert!(at(verdict) < at("<figure>") && at("<figure>") < at("<table>"));
    // The chart has marks at the rate of one path and at that of the host's link.
    assert!(html.contains("one path: 250 Mb/s") && html.contains("the host&#39;s link: 1000 Mb/s"));
    // There are two charts, each with six runs.
    assert_eq!(html.matches("<circle").count(), 12);
}

#[test]
fn regression_figures_of_the_page_have_units() {
    let html = page_of(goodput(), RunEnvironment::Lab(&FabricConfig::default()));
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).count();
    let cells = html.split("<td").skip(1).map(|cell| cell.split(['>', '<']).nth(1).unwrap());
    let raw: Vec<&str> = cells.filter(|cell| !cell.contains(' ') && digits(cell) > 4).collect();
    assert_eq!(raw, Vec::<&str>::new());
    assert!(html.contains("<td>935 Mb/s (931 to 940)</td>"), "{html}");
}

#[test]
fn regression_the_introduction_says_where_the_command_ran() {
    let lab = page_of(goodput(), RunEnvironment::Lab(&FabricConfig::default()));
    assert!(lab.contains("fabric of network namespaces on this machine") && lab.contains("seed 7"));
    let between = || goodput().between_machines();
    let peer = page_of(between(), RunEnvironment::Peer("b"));
    assert!(peer.contains("<code>b</code>, a peer of the daemon that runs here"), "{peer}");
    let [counted, uncounted] = [true, false]
        .map(|is_counted| page_of(between(), RunEnvironment::Addresses { is_counted }));
    assert!(counted.contains("this machine and a server (h0.0 to h1.0)"), "{counted}");
    let warning = "nothing shows that packets of";
    assert!(uncounted.contains(warning) && !counted.contains(warning));
    for page in [&peer, &counted, &uncounted] {
        assert!(page.contains("3 times each") && page.contains("Nothing was set up"), "{page}");
        assert!(!page.contains("fabric") && !page.contains("seed"), "{page}");
        assert!(page.contains("ENA Express beside plain<"), "TCP's settings are not known");
    }
}

#[test]
fn runs_that_show_the_machine_are_a_warning_at_the_top() {
    let mut case = goodput();
    case.runs[1].own_cpu_share = 0.9;
    let html = page_of(case, RunEnvironment::Lab(&FabricConfig::default()));
    let warning = html.find("this machine was too busy in 1 of 6 runs").unwrap();
    assert!(warning < html.find("<figure>").unwrap());
}

#[test]
fn limits_are_drawn_for_rates_that_come_near_them() {
    let fabric = FabricConfig::default();
    assert_eq!(
        limits(&fabric, "Mb/s").iter().map(|mark| mark.at).collect::<Vec<_>>(),
        [250.0, 1000.0]
    );
    assert_eq!(limits(&fabric, "ms"), []);
    let slow = case_of("goodput, b/s", "", &[1e3, 2e3], &[5e3, 6e3]);
    assert!(!page_of(slow, RunEnvironment::Lab(&fabric)).contains("one path"));
}

#[test]
fn what_failed_and_what_is_alone_is_said_first() {
    let mut case = goodput();
    case.runs[5].measured =
        Measured { figures: vec![Measured::failed(true)], ..Measured::default() };
    let html = page_of(case, RunEnvironment::Peer("b"));
    assert!(html.contains("verdict bad\">1 of 3 runs with ENA Express failed. With"), "{html}");
    let alone = page_of(case_of("time", "s", &[1.0], &[]), RunEnvironment::Peer("b"));
    assert!(alone.contains("There is nothing to compare."), "{alone}");
    let time = page_of(case_of("time", "s", &[1.0, 1.0], &[0.25, 0.26]), RunEnvironment::Peer("b"));
    let said = "With ENA Express, the command&#39;s time is 0.255 times that of";
    assert!(time.contains(said) && time.contains("255 ms instead of 1000 ms"), "{time}");
}

#[test]
fn a_page_of_many_runs_has_an_end() {
    let case = case_of("time", "s", &[1.0; 300], &[2.0; 300]);
    let html = page_of(case, RunEnvironment::Peer("b"));
    assert!(html.contains("The first 200 of 600 runs"), "{html}");
    assert!(html.matches("<circle").count() <= 4 * RUNS_MAX);
}
