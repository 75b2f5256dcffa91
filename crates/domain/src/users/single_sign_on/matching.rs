//! The rules that match verified claims to a user, or reject the sign-in.

use foundation::config::OidcSettings;
use foundation::model::{Invitation, User};
use thiserror::Error as ThisError;

use super::super::parse_email;
use super::VerifiedClaims;

/// The reason why a sign-in is rejected, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum SsoRejection {
    #[error(
        "This sign-in was not started in this browser, took longer than ten minutes, or was already used. Start again \
        at {0}/dashboard/login."
    )]
    NotStarted(String),
    #[error("The sign-in was not completed: {1} returned the error {0:?}.")]
    Denied(String, String),
    #[error(
        "{0} did not provide your e-mail address. Your account there needs one, and must share it."
    )]
    NoEmail(String),
    #[error("{1} has not verified the e-mail address {0}. Verify it there, then sign in again.")]
    EmailNotVerified(String, String),
    #[error("E-mail addresses at {0} are not allowed to sign in here.")]
    DomainNotAllowed(String),
    #[error("{0} has no account here. An owner of a workspace can invite you.")]
    NotInvited(String),
    #[error(
        "No user exists yet. The link that the server prints when it starts creates the first user."
    )]
    NoUsersYet,
    #[error(
        "{0} already has an account here, which is not linked to this sign-in. Sign in to it as before and link the \
        two under Account, or ask an operator of the server for a link."
    )]
    NotLinked(String),
    #[error("The invitation has been used, has expired, or does not exist.")]
    InvalidInvitation,
    #[error("This sign-in is already linked to another account.")]
    LinkedElsewhere,
    #[error("Your account is already linked to another sign-in. Unlink it under Account first.")]
    LinkedToOther,
    #[error("Your session has ended. Sign in, then link the two under Account.")]
    SessionEnded,
}

/// An existing user with the e-mail of the claims.
#[derive(Debug, Clone)]
pub struct EmailMatch {
    pub user: User,
    /// Whether the issuer is already linked to that user under another `sub`, so that the claims are about someone
    /// else.
    pub is_linked: bool,
    /// Whether the invitation resets the account: it is an operator's, and the user is a member of its workspace.
    pub is_reset: bool,
}

/// The user to whom claims belong.
#[derive(Debug, PartialEq, Eq)]
pub enum SsoMatch {
    /// The user is linked to issuer and `sub`.
    Linked(User),
    /// The user has the e-mail of the claims, which is trusted: the account is linked and loses its password, so its
    /// previous holder loses access.
    TrustedEmail(User),
    /// The user is new, with this e-mail.
    New(String),
}

/// Matches claims to a user, or rejects them.
pub fn match_claims(
    oidc: &OidcSettings,
    claims: &VerifiedClaims,
    linked_user: Option<User>,
    email_match: Option<EmailMatch>,
    invitation: Option<&Invitation>,
) -> Result<SsoMatch, SsoRejection> {
    let verified = claims.email.as_deref().filter(|_| claims.is_email_verified);
    // Some non-ASCII letters become ASCII letters in lower case, which would make the address equal to another one.
    let verified = verified.filter(|text| text.to_lowercase() == text.to_ascii_lowercase());
    let verified = verified.map(parse_email).and_then(Result::ok);
    if let Some(user) = linked_user {
        check_domain(oidc, verified.as_deref().unwrap_or(&user.email))?;
        return Ok(SsoMatch::Linked(user));
    }
    let Some(email) = verified else {
        return Err(match &claims.email {
            Some(email) if !claims.is_email_verified => {
                SsoRejection::EmailNotVerified(email.chars().take(254).collect(), oidc.name.clone())
            }
            Some(_) | None => SsoRejection::NoEmail(oidc.name.clone()),
        });
    };
    check_domain(oidc, &email)?;
    match email_match {
        // The holder of the operator's link could also give the account a new password.
        Some(found) if found.is_reset => Ok(SsoMatch::TrustedEmail(found.user)),
        // If the provider is the only authority on identities, its e-mail is trusted; but not if the issuer is already
        // linked to that user under another `sub`: then the address has changed its owner.
        Some(found) if oidc.is_password_sign_in_disabled && !found.is_linked => {
            Ok(SsoMatch::TrustedEmail(found.user))
        }
        Some(_) => Err(SsoRejection::NotLinked(email)),
        None if invitation.is_some() || oidc.default_role.is_some() => Ok(SsoMatch::New(email)),
        None => Err(SsoRejection::NotInvited(email)),
    }
}

fn check_domain(oidc: &OidcSettings, email: &str) -> Result<(), SsoRejection> {
    let domain = email.rsplit_once('@').map_or("", |(_, domain)| domain);
    match oidc.allowed_domains.is_empty()
        || oidc.allowed_domains.iter().any(|allowed| allowed == domain)
    {
        true => Ok(()),
        false => Err(SsoRejection::DomainNotAllowed(domain.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use foundation::id::{InvitationId, UserId};
    use foundation::model::{InvitationKind, MemberRole};
    use foundation::secret::Plaintext;

    use super::*;
    use crate::root_keys::default_workspace;

    fn oidc() -> OidcSettings {
        OidcSettings {
            issuer: "https://login.example.com".into(),
            client_id: "keyward".into(),
            client_secret: Plaintext::from("secret".to_owned()),
            scopes: Vec::new(),
            name: "the issuer".into(),
            allowed_domains: Vec::new(),
            default_role: None,
            is_password_sign_in_disabled: false,
        }
    }

    fn claims(email: &str, is_email_verified: bool) -> VerifiedClaims {
        let email = Some(email.to_owned()).filter(|email| !email.is_empty());
        VerifiedClaims {
            issuer: oidc().issuer,
            subject: "subject".into(),
            email,
            is_email_verified,
        }
    }

    fn user(email: &str) -> User {
        User { id: UserId::from(email), email: email.into(), created_at: Timestamp(0) }
    }

    fn email_match(email: &str, is_linked: bool) -> EmailMatch {
        EmailMatch { user: user(email), is_linked, is_reset: false }
    }

    fn invitation(kind: InvitationKind) -> Invitation {
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
    fn new_user_is_matched_when_invited_or_default_role_is_set_and_email_is_verified() {
        let open = OidcSettings { default_role: Some(MemberRole::Viewer), ..oidc() };
        let member = invitation(InvitationKind::Member);
        let unverified = SsoRejection::EmailNotVerified(ADA.into(), "the issuer".into());
        let no_email = SsoRejection::NoEmail("the issuer".into());
        let new = || Ok(SsoMatch::New(ADA.to_owned()));
        for (oidc, claims, invitation, expected) in [
            (oidc(), claims(ADA, true), None, Err(SsoRejection::NotInvited(ADA.into()))),
            (oidc(), claims(ADA, true), Some(&member), new()),
            (open.clone(), claims(ADA, true), None, new()),
            (open.clone(), claims(" ADA@Example.com", true), None, new()),
            (open.clone(), claims(ADA, false), None, Err(unverified.clone())),
            (oidc(), claims(ADA, false), Some(&member), Err(unverified)),
            (open.clone(), claims("", true), None, Err(no_email.clone())),
            (open.clone(), claims("no address", true), Some(&member), Err(no_email.clone())),
            (open, claims("\u{212a}ay@example.com", true), None, Err(no_email)),
        ] {
            assert_eq!(match_claims(&oidc, &claims, None, None, invitation), expected);
        }
    }

    #[test]
    fn linked_user_is_matched_when_email_has_changed() {
        let linked_user = || Some(user(ADA));
        for claims in [claims(ADA, true), claims("", false), claims("new@example.com", false)] {
            let other = Some(email_match("new@example.com", false));
            assert_eq!(
                match_claims(&oidc(), &claims, linked_user(), other, None),
                Ok(SsoMatch::Linked(user(ADA)))
            );
        }
    }

    #[test]
    fn account_with_same_email_is_matched_only_when_provider_or_operator_is_trusted() {
        let only = OidcSettings { is_password_sign_in_disabled: true, ..oidc() };
        let member = invitation(InvitationKind::Member);
        let operator = invitation(InvitationKind::Operator);
        let taken = || Ok(SsoMatch::TrustedEmail(user(ADA)));
        let unlinked = || Err(SsoRejection::NotLinked(ADA.into()));
        for (oidc, is_linked, is_reset, invitation, expected) in [
            (oidc(), false, false, None, unlinked()),
            (oidc(), false, false, Some(&member), unlinked()),
            // A link to a workspace of which the user is not a member.
            (oidc(), false, false, Some(&operator), unlinked()),
            (oidc(), false, true, Some(&operator), taken()),
            (oidc(), true, true, Some(&operator), taken()),
            (only.clone(), false, false, None, taken()),
            (only.clone(), false, false, Some(&member), taken()),
            // The provider has given the address to another user.
            (only, true, false, None, unlinked()),
        ] {
            let email_match = Some(EmailMatch { is_reset, ..email_match(ADA, is_linked) });
            let found = match_claims(&oidc, &claims(ADA, true), None, email_match, invitation);
            assert_eq!(found, expected);
        }
        let unverified = match_claims(
            &OidcSettings { is_password_sign_in_disabled: true, ..oidc() },
            &claims(ADA, false),
            None,
            Some(email_match(ADA, false)),
            Some(&operator),
        );
        assert_eq!(
            unverified,
            Err(SsoRejection::EmailNotVerified(ADA.into(), "the issuer".into()))
        );
    }

    #[test]
    fn sign_in_is_rejected_when_domain_is_not_allowed() {
        let oidc = OidcSettings {
            allowed_domains: vec!["example.com".into(), "example.org".into()],
            default_role: Some(MemberRole::Viewer),
            ..oidc()
        };
        let is_allowed =
            |email: &str| match_claims(&oidc, &claims(email, true), None, None, None).is_ok();

        assert!(is_allowed(ADA) && is_allowed("ada@EXAMPLE.org"));
        for email in ["ada@evil-example.com", "ada@example.com.evil", "ada@sub.example.com"] {
            assert!(!is_allowed(email), "{email}");
        }
        let moved = match_claims(&oidc, &claims("ada@else.com", true), Some(user(ADA)), None, None);
        assert_eq!(moved, Err(SsoRejection::DomainNotAllowed("else.com".into())));
        // An unverified address is ignored: the stored address decides.
        assert!(
            match_claims(&oidc, &claims("x@else.com", false), Some(user(ADA)), None, None).is_ok()
        );
        let stored = match_claims(&oidc, &claims(ADA, false), Some(user("x@else.com")), None, None);
        assert_eq!(stored, Err(SsoRejection::DomainNotAllowed("else.com".into())));
    }
}
