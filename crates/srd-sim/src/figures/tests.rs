//! The figures in their quick form.

use super::*;

#[test]
fn every_figure_has_its_charts_numbers_and_sentences() {
    let mut drawn = Vec::new();
    for figure in figures(true).unwrap() {
        let results = run::run_all(figure.jobs(), 1, &|_, _| {});
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let one = figure.draw(&results);
        let transports = if figure.number == 4 { ENDLESS.len() } else { ENDING.len() };
        assert_eq!(one.ours.len(), transports, "{:?}", one.ours);
        let charts = if figure.number == 4 { transports } else { 1 };
        assert_eq!(one.charts.len(), charts);
        assert!(one.charts.iter().all(|chart| chart.text.contains("</svg>")));
        assert!(one.table.text.lines().count() > transports, "{}", one.table.text);
        drawn.push((figure, one));
    }
    let numbers: Vec<u8> = drawn.iter().map(|(figure, _)| figure.number).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6]);
    let page = index_html(&drawn);
    for (figure, one) in &drawn {
        assert!(one.charts.iter().all(|chart| page.contains(&chart.name)));
        assert!(page.contains(&one.table.name) && page.contains(figure.title));
    }
}
