//! The icons of pages, as inline SVG that takes the color and size of the text beside it.
//!
//! The shapes are of Lucide 1.62.0, unmodified; ISC and MIT, see `assets/lucide.LICENSE`.

/// Wraps the shapes of an icon. Screen readers skip it: the text beside it, or the label of its control, says the same.
macro_rules! icon {
    ($($shape:literal),+) => {
        concat!("<svg class=\"icon\" viewBox=\"0 0 24 24\" aria-hidden=\"true\">", $($shape),+, "</svg>")
    };
}

pub const OVERVIEW: &str = icon!(
    r#"<rect width="7" height="9" x="3" y="3" rx="1"/>"#,
    r#"<rect width="7" height="5" x="14" y="3" rx="1"/>"#,
    r#"<rect width="7" height="9" x="14" y="12" rx="1"/>"#,
    r#"<rect width="7" height="5" x="3" y="16" rx="1"/>"#
);
pub const ANALYTICS: &str = icon!(
    r#"<path d="M3 3v16a2 2 0 0 0 2 2h16"/>"#,
    r#"<path d="M18 17V9"/>"#,
    r#"<path d="M13 17V5"/>"#,
    r#"<path d="M8 17v-3"/>"#
);
pub const LOGS: &str = icon!(
    r#"<path d="M3 5h1"/>"#,
    r#"<path d="M3 12h1"/>"#,
    r#"<path d="M3 19h1"/>"#,
    r#"<path d="M8 5h1"/>"#,
    r#"<path d="M8 12h1"/>"#,
    r#"<path d="M8 19h1"/>"#,
    r#"<path d="M13 5h8"/>"#,
    r#"<path d="M13 12h8"/>"#,
    r#"<path d="M13 19h8"/>"#
);
pub const AUDIT: &str = icon!(
    r#"<path d="M15 12h-5"/>"#,
    r#"<path d="M15 8h-5"/>"#,
    r#"<path d="M19 17V5a2 2 0 0 0-2-2H4"/>"#,
    r#"<path d="M8 21h12a2 2 0 0 0 2-2v-1a1 1 0 0 0-1-1H11a1 1 0 0 0-1 1v1a2 2 0 1 1-4 0V5a2 2 0 1 0-4 0v2a1 1 0 0 0 1 1h3"/>"#
);
pub const APIS: &str = icon!(
    r#"<path d="M21 8a2 2 0 0 0-1-1.73l-7-4a2 2 0 0 0-2 0l-7 4A2 2 0 0 0 3 8v8a2 2 0 0 0 1 1.73l7 4a2 2 0 0 0 2 0l7-4A2 2 0 0 0 21 16Z"/>"#,
    r#"<path d="m3.3 7 8.7 5 8.7-5"/>"#,
    r#"<path d="M12 22V12"/>"#
);
pub const KEYS: &str = icon!(
    r#"<path d="M2.586 17.414A2 2 0 0 0 2 18.828V21a1 1 0 0 0 1 1h3a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h1a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h.172a2 2 0 0 0 1.414-.586l.814-.814a6.5 6.5 0 1 0-4-4z"/>"#,
    r#"<circle cx="16.5" cy="7.5" r=".5" fill="currentColor"/>"#
);
pub const IDENTITIES: &str = icon!(
    r#"<path d="M13 19a4 4 0 00-8 0"/>"#,
    r#"<path d="M16 10h2"/>"#,
    r#"<path d="M16 14h2"/>"#,
    r#"<circle cx="9" cy="12" r="3"/>"#,
    r#"<rect x="2" y="5" width="20" height="14" rx="2"/>"#
);
pub const PERMISSIONS: &str = icon!(
    r#"<path d="M20 13c0 5-3.5 7.5-7.66 8.95a1 1 0 0 1-.67-.01C7.5 20.5 4 18 4 13V6a1 1 0 0 1 1-1c2 0 4.5-1.2 6.24-2.72a1.17 1.17 0 0 1 1.52 0C14.51 3.81 17 5 19 5a1 1 0 0 1 1 1z"/>"#,
    r#"<path d="m9 12 2 2 4-4"/>"#
);
pub const RATELIMITS: &str =
    icon!(r#"<path d="m12 14 4-4"/>"#, r#"<path d="M3.34 19a10 10 0 1 1 17.32 0"/>"#);
pub const GATEWAYS: &str = icon!(
    r#"<path d="m10.586 5.414-5.172 5.172"/>"#,
    r#"<path d="m18.586 13.414-5.172 5.172"/>"#,
    r#"<path d="M6 12h12"/>"#,
    r#"<circle cx="12" cy="20" r="2"/>"#,
    r#"<circle cx="12" cy="4" r="2"/>"#,
    r#"<circle cx="20" cy="12" r="2"/>"#,
    r#"<circle cx="4" cy="12" r="2"/>"#
);
pub const ROOT_KEYS: &str = icon!(
    r#"<path d="M12.4 2.7a2.5 2.5 0 0 1 3.4 0l5.5 5.5a2.5 2.5 0 0 1 0 3.4l-3.7 3.7a2.5 2.5 0 0 1-3.4 0L8.7 9.8a2.5 2.5 0 0 1 0-3.4z"/>"#,
    r#"<path d="m14 7 3 3"/>"#,
    r#"<path d="m9.4 10.6-6.814 6.814A2 2 0 0 0 2 18.828V21a1 1 0 0 0 1 1h3a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h1a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h.172a2 2 0 0 0 1.414-.586l.814-.814"/>"#
);
pub const MEMBERS: &str = icon!(
    r#"<path d="M16 21v-2a4 4 0 0 0-4-4H6a4 4 0 0 0-4 4v2"/>"#,
    r#"<path d="M16 3.128a4 4 0 0 1 0 7.744"/>"#,
    r#"<path d="M22 21v-2a4 4 0 0 0-3-3.87"/>"#,
    r#"<circle cx="9" cy="7" r="4"/>"#
);
pub const IMPORTS: &str = icon!(
    r#"<path d="M12 3v12"/>"#,
    r#"<path d="m8 11 4 4 4-4"/>"#,
    r#"<path d="M8 5H4a2 2 0 0 0-2 2v10a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2V7a2 2 0 0 0-2-2h-4"/>"#
);
pub const SEARCH: &str =
    icon!(r#"<path d="m21 21-4.34-4.34"/>"#, r#"<circle cx="11" cy="11" r="8"/>"#);
pub const MENU: &str =
    icon!(r#"<path d="M4 5h16"/>"#, r#"<path d="M4 12h16"/>"#, r#"<path d="M4 19h16"/>"#);
pub const MORE: &str = icon!(
    r#"<circle cx="12" cy="12" r="1"/>"#,
    r#"<circle cx="19" cy="12" r="1"/>"#,
    r#"<circle cx="5" cy="12" r="1"/>"#
);
pub const EXPAND: &str = icon!(r#"<path d="m7 15 5 5 5-5"/>"#, r#"<path d="m7 9 5-5 5 5"/>"#);
pub const COPY: &str = icon!(
    r#"<rect width="14" height="14" x="8" y="8" rx="2" ry="2"/>"#,
    r#"<path d="M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"/>"#
);
pub const CHECK: &str = icon!(r#"<path d="M20 6 9 17l-5-5"/>"#);
pub const ACCOUNT: &str = icon!(
    r#"<path d="M17.925 20.056a6 6 0 0 0-11.851.001"/>"#,
    r#"<circle cx="12" cy="11" r="4"/>"#,
    r#"<circle cx="12" cy="12" r="10"/>"#
);
pub const SIGN_OUT: &str = icon!(
    r#"<path d="m16 17 5-5-5-5"/>"#,
    r#"<path d="M21 12H9"/>"#,
    r#"<path d="M9 21H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2h4"/>"#
);
pub const CREATE: &str = icon!(r#"<path d="M5 12h14"/>"#, r#"<path d="M12 5v14"/>"#);
pub const WORKSPACE: &str = icon!(
    r#"<path d="M14 17H5"/>"#,
    r#"<path d="M19 7h-9"/>"#,
    r#"<circle cx="17" cy="17" r="3"/>"#,
    r#"<circle cx="7" cy="7" r="3"/>"#
);
