//! Renders a story as a self-contained web page, with the story as JSON.

use super::story::Story;
use flagstone_lab::chart::escape;
use serde::Serialize;

/// The complete page.
///
/// # Panics
/// Never: a story is plain data.
pub fn page(story: &Story) -> String {
    include_str!("page.html")
        .replace("{{title}}", &escape(&story.title))
        .replace("{{about}}", &escape(&story.about))
        .replace("/*{{style}}*/", include_str!("page.css"))
        .replace("/*{{script}}*/", include_str!("page.js"))
        .replace("{{story}}", &data(story))
}

/// JSON that is safe within a page's script element.
fn data(story: &impl Serialize) -> String {
    let text = serde_json::to_string(story).expect("a story is plain data");
    text.replace("</", "<\\/").replace("<!--", "<\\u0021--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_the_element_that_it_is_in() {
        let text = data(&"</script><!-- a");
        assert_eq!(text, r#""<\/script><\u0021-- a""#);
        let back: String = serde_json::from_str(&text).unwrap();
        assert_eq!(back, "</script><!-- a");
    }
}
