//! The HTML page of a comparison: one self-contained file.

use flagstone_lab::chart::escape;

const STYLE: &str = include_str!("page.css");

/// A page with the title `title` and the body `body`.
pub(in crate::commands) fn whole(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body class=\"comparison\">\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n",
        title = escape(title)
    )
}

/// Lines as HTML paragraphs.
pub(in crate::commands) fn paragraphs(lines: &[String]) -> String {
    let each = lines.iter().map(|line| format!("<p>{}</p>\n", prose(line)));
    each.collect()
}

/// Text as HTML in which option names are not broken across lines.
pub(in crate::commands) fn prose(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        if word.contains("--") {
            format!("<code>{}</code>", escape(word))
        } else {
            escape(word)
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A table of plain text, in which some cells are HTML already.
pub(in crate::commands) fn table(head: &[String], lines: &[Vec<String>]) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>"));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let head: Vec<String> = head.iter().map(|text| escape(text)).collect();
    let lines: String = lines.iter().map(|cells| row("td", cells)).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>\n{lines}</tbody>\n</table></div>\n",
        row("th", &head)
    )
}

/// A figure with a bar behind it. `share` is the length of the bar, relative to the longest.
pub(super) fn bar(text: &str, share: f64) -> String {
    format!(
        "<span class=\"bar\" style=\"--share:{:.1}%\">{}</span>",
        share.clamp(0.0, 1.0) * 100.0,
        escape(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_not_broken_over_two_lines() {
        let text = prose("a < b (--seeds 5), not a-b");
        assert_eq!(text, "a &lt; b <code>(--seeds</code> 5), not a-b");
    }
}
