//! Who may come in by what an issuer says of them, and as whom.

use foundation::config::OidcSettings;
use foundation::model::{Invitation, InvitationKind, User};
use thiserror::Error as ThisError;

use super::super::email;
use super::Told;

/// Why somebody does not come in, as a sentence for them.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum SsoRejection {
    #[error(
        "This sign-in was not begun in this browser, took longer than ten minutes, or has been used. Begin again \
        at {0}/dashboard/login."
    )]
    NotBegun(String),
    #[error("The sign-in was not finished: {0:?} is what {1} says.")]
    Denied(String, String),
    #[error(
        "{0} tells no e-mail address of you. It must be allowed to tell it, and you must have one."
    )]
    NoEmail(String),
    #[error(
        "{1} does not say that the e-mail address {0} is really yours. Verify it there, then sign in again."
    )]
    Unverified(String, String),
    #[error("People with an address at {0} are not let in here.")]
    Domain(String),
    #[error("{0} has no account here. An owner of a workspace can invite you.")]
    NotInvited(String),
    #[error(
        "Nobody is here yet. The first to come is who opens the link that the server prints at its start."
    )]
    TooEarly,
    #[error(
        "{0} has an account here already, which this sign-in does not belong to. Sign in to it as you always did, and \
        link the two under Account; or ask for a link that somebody with a shell on the server can make."
    )]
    Unlinked(String),
    #[error("The link that you came with has been used, has ended, or never was.")]
    NoLink,
    #[error("Somebody else here has this sign-in already.")]
    LinkedElsewhere,
}

/// A person who has the e-mail that the issuer tells.
#[derive(Debug, Clone)]
pub struct EmailMatch {
    pub person: User,
    /// Whether the issuer calls that person something already, and so means somebody else now.
    pub is_linked: bool,
}

/// How somebody comes in.
#[derive(Debug, PartialEq, Eq)]
pub enum SsoMatch {
    /// The issuer's word for them is known.
    Known(User),
    /// By the e-mail, believed for good: whoever had the account by its password has it no more.
    Taken(User),
    /// For the first time, with this e-mail.
    New(String),
}

/// Who may come in, and as whom.
pub fn entry(
    oidc: &OidcSettings,
    told: &Told,
    by_login: Option<User>,
    by_email: Option<EmailMatch>,
    link: Option<&Invitation>,
) -> Result<SsoMatch, SsoRejection> {
    let verified = told.email.as_deref().filter(|_| told.is_email_verified);
    // There are letters that become others' when they are made small.
    let verified = verified.filter(|text| text.to_lowercase() == text.to_ascii_lowercase());
    let verified = verified.map(email).and_then(Result::ok);
    if let Some(person) = by_login {
        check_domain(oidc, verified.as_deref().unwrap_or(&person.email))?;
        return Ok(SsoMatch::Known(person));
    }
    let Some(email) = verified else {
        return Err(match &told.email {
            Some(email) if !told.is_email_verified => {
                SsoRejection::Unverified(email.chars().take(254).collect(), oidc.name.clone())
            }
            Some(_) | None => SsoRejection::NoEmail(oidc.name.clone()),
        });
    };
    check_domain(oidc, &email)?;
    let is_operators = link.is_some_and(|link| link.kind == InvitationKind::Operator);
    match by_email {
        // Who has an operator's link could as well give the account a new password.
        Some(namesake) if is_operators => Ok(SsoMatch::Taken(namesake.person)),
        // Where the issuer alone decides who anybody is, it decides that too; but a name that it gives to somebody
        // else than before is not the same person.
        Some(namesake) if oidc.is_only && !namesake.is_linked => {
            Ok(SsoMatch::Taken(namesake.person))
        }
        Some(_) => Err(SsoRejection::Unlinked(email)),
        None if link.is_some() || oidc.default_role.is_some() => Ok(SsoMatch::New(email)),
        None => Err(SsoRejection::NotInvited(email)),
    }
}

fn check_domain(oidc: &OidcSettings, email: &str) -> Result<(), SsoRejection> {
    let domain = email.rsplit_once('@').map_or("", |(_, domain)| domain);
    match oidc.allowed_domains.is_empty() || oidc.allowed_domains.iter().any(|one| one == domain) {
        true => Ok(()),
        false => Err(SsoRejection::Domain(domain.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use foundation::id::{InvitationId, PersonId};
    use foundation::model::MemberRole;
    use foundation::secret::Plaintext;

    use super::*;
    use crate::domain::root_keys::default_workspace;

    fn oidc() -> OidcSettings {
        OidcSettings {
            issuer: "https://login.example.com".into(),
            client_id: "keyward".into(),
            client_secret: Plaintext::from("secret".to_owned()),
            scopes: Vec::new(),
            name: "the issuer".into(),
            allowed_domains: Vec::new(),
            default_role: None,
            is_only: false,
        }
    }

    fn told(email: &str, is_email_verified: bool) -> Told {
        let email = Some(email.to_owned()).filter(|email| !email.is_empty());
        Told { issuer: oidc().issuer, subject: "subject".into(), email, is_email_verified }
    }

    fn person(email: &str) -> User {
        User { id: PersonId::from(email), email: email.into(), created_at: Timestamp(0) }
    }

    fn namesake(email: &str, is_linked: bool) -> EmailMatch {
        EmailMatch { person: person(email), is_linked }
    }

    fn link(kind: InvitationKind) -> Invitation {
        Invitation {
            id: InvitationId::random(),
            workspace_id: default_workspace(),
            workspace_name: String::new(),
            kind,
            role: MemberRole::Viewer,
            invited_by: None,
            created_at: Timestamp(0),
            expires_at: Timestamp(0),
        }
    }

    const ADA: &str = "ada@example.com";

    #[test]
    fn who_is_new_comes_in_by_an_invitation_or_where_all_do_and_with_a_verified_email_alone() {
        let open = OidcSettings { default_role: Some(MemberRole::Viewer), ..oidc() };
        let member = link(InvitationKind::Member);
        let unverified = SsoRejection::Unverified(ADA.into(), "the issuer".into());
        let no_email = SsoRejection::NoEmail("the issuer".into());
        let new = || Ok(SsoMatch::New(ADA.to_owned()));
        for (oidc, told, link, wanted) in [
            (oidc(), told(ADA, true), None, Err(SsoRejection::NotInvited(ADA.into()))),
            (oidc(), told(ADA, true), Some(&member), new()),
            (open.clone(), told(ADA, true), None, new()),
            (open.clone(), told(" ADA@Example.com", true), None, new()),
            (open.clone(), told(ADA, false), None, Err(unverified.clone())),
            (oidc(), told(ADA, false), Some(&member), Err(unverified)),
            (open.clone(), told("", true), None, Err(no_email.clone())),
            (open.clone(), told("no address", true), Some(&member), Err(no_email.clone())),
            (open, told("\u{212a}ay@example.com", true), None, Err(no_email)),
        ] {
            assert_eq!(entry(&oidc, &told, None, None, link), wanted);
        }
    }

    #[test]
    fn who_is_linked_comes_in_whatever_the_email_says_now() {
        let known = || Some(person(ADA));
        for told in [told(ADA, true), told("", false), told("new@example.com", false)] {
            let other = Some(namesake("new@example.com", false));
            assert_eq!(
                entry(&oidc(), &told, known(), other, None),
                Ok(SsoMatch::Known(person(ADA)))
            );
        }
    }

    #[test]
    fn an_account_with_the_email_is_not_taken_unless_nothing_but_the_issuer_counts() {
        let only = OidcSettings { is_only: true, ..oidc() };
        let member = link(InvitationKind::Member);
        let operator = link(InvitationKind::Operator);
        let taken = || Ok(SsoMatch::Taken(person(ADA)));
        let unlinked = || Err(SsoRejection::Unlinked(ADA.into()));
        for (oidc, is_linked, link, wanted) in [
            (oidc(), false, None, unlinked()),
            (oidc(), false, Some(&member), unlinked()),
            (oidc(), false, Some(&operator), taken()),
            (oidc(), true, Some(&operator), taken()),
            (only.clone(), false, None, taken()),
            (only.clone(), false, Some(&member), taken()),
            // The issuer has given the address to somebody else.
            (only, true, None, unlinked()),
        ] {
            let found = entry(&oidc, &told(ADA, true), None, Some(namesake(ADA, is_linked)), link);
            assert_eq!(found, wanted);
        }
        let unverified = entry(
            &OidcSettings { is_only: true, ..oidc() },
            &told(ADA, false),
            None,
            Some(namesake(ADA, false)),
            Some(&operator),
        );
        assert_eq!(unverified, Err(SsoRejection::Unverified(ADA.into(), "the issuer".into())));
    }

    #[test]
    fn only_people_of_the_domains_come_in_by_the_whole_domain() {
        let of = OidcSettings {
            allowed_domains: vec!["example.com".into(), "example.org".into()],
            default_role: Some(MemberRole::Viewer),
            ..oidc()
        };
        let comes_in = |email: &str| entry(&of, &told(email, true), None, None, None).is_ok();

        assert!(comes_in(ADA) && comes_in("ada@EXAMPLE.org"));
        for email in ["ada@evil-example.com", "ada@example.com.evil", "ada@sub.example.com"] {
            assert!(!comes_in(email), "{email}");
        }
        let left = entry(&of, &told("ada@else.com", true), Some(person(ADA)), None, None);
        assert_eq!(left, Err(SsoRejection::Domain("else.com".into())));
        // What is not verified is not believed either way.
        assert!(entry(&of, &told("x@else.com", false), Some(person(ADA)), None, None).is_ok());
        let none = entry(&of, &told(ADA, false), Some(person("x@else.com")), None, None);
        assert_eq!(none, Err(SsoRejection::Domain("else.com".into())));
    }
}
