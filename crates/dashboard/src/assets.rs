//! Serves the static files of pages. They are embedded in the binary, and their paths contain a hash of their content,
//! so browsers may cache them permanently.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Response};
use axum::response::IntoResponse as _;
use foundation::secret::KeyHash;

/// An embedded file.
struct Asset {
    path: String,
    content_type: &'static str,
    bytes: Bytes,
}

/// The paths of the static files.
pub struct AssetPaths {
    pub css: &'static str,
    pub js: &'static str,
    pub htmx: &'static str,
    pub import_js: &'static str,
    pub uplot_js: &'static str,
    pub uplot_css: &'static str,
    pub chart_js: &'static str,
    pub icon: &'static str,
    /// The typeface of Latin letters, which every page needs.
    pub typeface: &'static str,
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset::new($name, $kind, Bytes::from_static(include_bytes!(concat!("assets/", $name))))
    };
}

/// The style sheet: tokens and the frame of every page, the components of docs/design.md, and what only some pages have.
const STYLES: &str = concat!(
    include_str!("assets/base.css"),
    include_str!("assets/components.css"),
    include_str!("assets/pages.css")
);

static ASSETS: LazyLock<[Asset; 10]> = LazyLock::new(|| {
    // Inter 4, the subsets of Fontsource 5.3.0, unmodified; OFL 1.1, see inter.LICENSE beside them.
    let latin = asset!("inter-latin.woff2", "font/woff2");
    let extended = asset!("inter-latin-ext.woff2", "font/woff2");
    let css = STYLES
        .replace("inter-latin.woff2", &latin.path)
        .replace("inter-latin-ext.woff2", &extended.path);
    [
        Asset::new("keyward.css", "text/css; charset=utf-8", Bytes::from(css)),
        asset!("keyward.js", "text/javascript; charset=utf-8"),
        // htmx 2.0.11, unmodified; 0BSD, see htmx.LICENSE beside it.
        asset!("htmx.min.js", "text/javascript; charset=utf-8"),
        asset!("import.js", "text/javascript; charset=utf-8"),
        // uPlot 1.6.32, unmodified; MIT, see uplot.LICENSE beside it.
        asset!("uplot.min.js", "text/javascript; charset=utf-8"),
        asset!("uplot.css", "text/css; charset=utf-8"),
        asset!("chart.js", "text/javascript; charset=utf-8"),
        asset!("icon.svg", "image/svg+xml"),
        latin,
        extended,
    ]
});

impl Asset {
    fn new(name: &str, kind: &'static str, bytes: Bytes) -> Self {
        let hash = &KeyHash::compute(&bytes).to_hex()[..16];
        Self { path: format!("/dashboard/assets/{hash}/{name}"), content_type: kind, bytes }
    }
}

/// Returns the paths of the files that the head of a page names.
pub fn asset_paths() -> AssetPaths {
    let [css, js, htmx, import_js, uplot_js, uplot_css, chart_js, icon, typeface, _] = &*ASSETS;
    AssetPaths {
        css: &css.path,
        js: &js.path,
        htmx: &htmx.path,
        import_js: &import_js.path,
        uplot_js: &uplot_js.path,
        uplot_css: &uplot_css.path,
        chart_js: &chart_js.path,
        icon: &icon.path,
        typeface: &typeface.path,
    }
}

/// Returns the requested file, or `None` if the path is not one. Files need no authentication.
pub fn serve(request: &Request) -> Option<Response<Body>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return None;
    }
    let asset = ASSETS.iter().find(|asset| asset.path == request.uri().path())?;
    let caching = HeaderValue::from_static("public, max-age=31536000, immutable");
    let kind = HeaderValue::from_static(asset.content_type);
    Some(([(CONTENT_TYPE, kind), (CACHE_CONTROL, caching)], asset.bytes.clone()).into_response())
}

#[cfg(test)]
mod tests {
    use super::STYLES;

    /// Detects an unclosed brace, which disables all following rules without an error in the browser.
    #[test]
    fn style_sheet_has_balanced_braces() {
        let mut depth = 0;
        for (line, text) in (1..).zip(STYLES.lines()) {
            for c in text.chars() {
                depth += match c {
                    '{' => 1,
                    '}' => -1,
                    _ => 0,
                };
                assert!((0..=2).contains(&depth), "line {line}: {depth} braces are open");
            }
            let begins = text.starts_with(['.', '@', '#', ':', '['])
                || text.starts_with(|c: char| c.is_ascii_alphabetic());
            let opened = text.matches('{').count();
            let before = depth + i32::try_from(text.matches('}').count()).unwrap_or(0)
                - i32::try_from(opened).unwrap_or(0);
            assert!(!begins || before == 0, "line {line} begins within another rule: {text}");
        }
        assert_eq!(depth, 0, "a brace is not closed");
    }

    /// Returns the values of a color token in the light and the dark theme.
    fn color(token: &str) -> [u32; 2] {
        let (_, rest) = STYLES.split_once(&format!("--{token}: light-dark(#")).expect("the token");
        let (light, rest) = rest.split_once(", #").expect("two colors");
        let (dark, _) = rest.split_once(')').expect("an end");
        [light, dark].map(|hex| u32::from_str_radix(hex, 16).expect("a color"))
    }

    /// Computes the contrast of two colors as WCAG 2 defines it.
    fn contrast(one: u32, other: u32) -> f64 {
        let luminance = |color: u32| {
            let share = |shift: u32| {
                let part = f64::from((color >> shift) & 0xff) / 255.0;
                if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * share(16) + 0.7152 * share(8) + 0.0722 * share(0)
        };
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        (one / other).max(other / one)
    }

    #[test]
    fn colors_have_contrast_to_their_backgrounds_in_both_themes() {
        let backgrounds = ["ground", "side", "surface", "raised", "pressed"];
        let text = backgrounds.iter().flat_map(|on| [("text", *on, 4.5), ("muted", *on, 4.5)]);
        let pairs = [
            ("accent", "surface", 4.5),
            ("accent", "raised", 4.5),
            ("accent", "accent-soft", 4.5),
            ("accent-hover", "surface", 4.5),
            ("on-accent", "accent", 4.5),
            ("on-accent", "accent-hover", 4.5),
            ("good", "good-soft", 4.5),
            ("bad", "bad-soft", 4.5),
            ("bad", "surface", 4.5),
            ("on-bad", "bad", 4.5),
            ("on-bad", "bad-hover", 4.5),
            ("edge", "surface", 3.0),
            ("edge", "ground", 3.0),
        ];
        let series = [
            "c-good",
            "c-limited",
            "c-spent",
            "c-missing",
            "c-forbidden",
            "c-off",
            "c-over",
            "c-unknown",
        ];
        let series = series.iter().map(|series| (*series, "surface", 3.0));
        for (front, back, least) in text.chain(pairs).chain(series) {
            for (theme, (front_color, back_color)) in
                color(front).into_iter().zip(color(back)).enumerate()
            {
                let ratio = contrast(front_color, back_color);
                assert!(ratio >= least, "{front} on {back}, theme {theme}: {ratio:.2} < {least}");
            }
        }
    }
}
