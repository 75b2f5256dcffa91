//! The row of a key in the form in which it is cached.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use foundation::clock::Timestamp;
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, WorkspaceId};
use foundation::model::{Meta, Networks};
use store::StoredKey;
use store::cache::Cached;
use store::freshness::ReadVersion;

/// The number of slots of a table of [`ApiPart`]s.
const API_SLOTS: u64 = 4_096;

/// The part of a key's row that the keys of its API have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiPart {
    workspace_id: WorkspaceId,
    api_id: ApiId,
    is_workspace_enabled: bool,
    allowed_networks: Option<Networks>,
    home: Option<Home>,
}

impl From<&StoredKey> for ApiPart {
    fn from(stored: &StoredKey) -> Self {
        Self {
            workspace_id: stored.key.workspace_id.clone(),
            api_id: stored.key.api_id.clone(),
            is_workspace_enabled: stored.workspace_enabled,
            allowed_networks: stored.allowed_networks.clone(),
            home: stored.home.clone(),
        }
    }
}

impl ApiPart {
    /// Returns the approximate size in bytes.
    fn size(&self) -> usize {
        let networks = self.allowed_networks.as_ref();
        size_of::<Self>()
            + self.workspace_id.as_str().len()
            + self.api_id.as_str().len()
            + networks.map_or(0, |networks| size_of_val(networks.as_slice()))
            + self.home.as_ref().map_or(0, |home| home.region.len())
    }
}

/// Shares equal parts among the keys that have them. Each slot has the part that was found last of those that hash to it,
/// so the table has a fixed size. A part that another one has replaced there is not shared with later keys.
pub struct ApiParts(Box<[ArcSwapOption<ApiPart>]>);

impl Default for ApiParts {
    fn default() -> Self {
        Self((0..API_SLOTS).map(|_| ArcSwapOption::empty()).collect())
    }
}

impl ApiParts {
    /// Returns the part that earlier keys have, if it is equal.
    pub fn share(&self, part: ApiPart) -> Arc<ApiPart> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&part.api_id);
        let slot = usize::try_from(hash % API_SLOTS).ok().and_then(|at| self.0.get(at));
        let known = slot.and_then(ArcSwapOption::load_full);
        if let Some(known) = known.filter(|known| **known == part) {
            return known;
        }
        let part = Arc::new(part);
        if let Some(slot) = slot {
            slot.store(Some(part.clone()));
        }
        part
    }
}

/// The position of each text of a packed key.
const ID: usize = 0;
const START: usize = 1;
const NAME: usize = 2;
const OWNER_ID: usize = 3;
const ENVIRONMENT: usize = 4;
const IDENTITY_ID: usize = 5;
/// The number of texts.
const TEXTS: usize = 6;

/// The flags of a packed key after those of its texts, which say whether the row has them.
const IS_ENABLED: u8 = 1 << TEXTS;
const HAS_EXPIRY: u8 = 1 << (TEXTS + 1);

/// The fields of a key's row that a verification may read: its texts are in one allocation, and what the keys of its API
/// have in common is shared.
#[derive(Debug, Clone)]
pub struct PackedKey {
    api: Arc<ApiPart>,
    /// Every text, one after the other.
    texts: Box<str>,
    /// Where each text but the last one ends.
    ends: [u32; TEXTS - 1],
    flags: u8,
    meta: Option<Meta>,
    /// Without a meaning unless [`HAS_EXPIRY`] is set.
    expires_at: Timestamp,
    created_at: Timestamp,
    /// When the row was read.
    read_version: ReadVersion,
}

impl PackedKey {
    /// Packs a row whose API has this part.
    pub fn new(row: &Cached<StoredKey>, api: Arc<ApiPart>) -> Self {
        let key = &row.value.key;
        let texts: [Option<&str>; TEXTS] = [
            Some(key.id.as_str()),
            Some(&key.start),
            key.name.as_deref(),
            key.owner_id.as_deref(),
            key.environment.as_deref(),
            key.identity_id.as_ref().map(IdentityId::as_str),
        ];
        let mut joined = String::with_capacity(texts.into_iter().flatten().map(str::len).sum());
        let mut ends = [0; TEXTS - 1];
        let mut flags = if key.is_enabled { IS_ENABLED } else { 0 };
        for (at, text) in texts.into_iter().enumerate() {
            joined.push_str(text.unwrap_or_default());
            flags |= u8::from(text.is_some()) << at;
            if let Some(end) = ends.get_mut(at) {
                *end = u32::try_from(joined.len()).expect("no database returns a row of 4 GiB");
            }
        }
        if key.expires_at.is_some() {
            flags |= HAS_EXPIRY;
        }
        Self {
            api,
            texts: joined.into_boxed_str(),
            ends,
            flags,
            meta: key.meta.clone(),
            expires_at: key.expires_at.unwrap_or_default(),
            created_at: key.created_at,
            read_version: row.read_version(),
        }
    }

    /// Returns the approximate size in bytes of what it owns outside of itself. What it shares is counted with the first
    /// key that has it.
    pub fn heap_size(&self) -> usize {
        // The other owner is the table.
        let is_first = Arc::strong_count(&self.api) <= 2;
        let api = if is_first { self.api.size() } else { 0 };
        api + self.texts.len() + self.meta.as_ref().map_or(0, |meta| meta.as_str().len())
    }

    fn text(&self, at: usize) -> &str {
        let end = |at: usize| self.ends.get(at).map_or(self.texts.len(), |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.texts.get(start..end(at)).unwrap_or_default()
    }

    fn optional_text(&self, at: usize) -> Option<&str> {
        (self.flags & (1 << at) != 0).then(|| self.text(at))
    }

    pub fn id(&self) -> &str {
        self.text(ID)
    }

    /// Returns the leading characters that may be shown.
    pub fn start(&self) -> &str {
        self.text(START)
    }

    pub fn name(&self) -> Option<&str> {
        self.optional_text(NAME)
    }

    pub fn owner_id(&self) -> Option<&str> {
        self.optional_text(OWNER_ID)
    }

    pub fn environment(&self) -> Option<&str> {
        self.optional_text(ENVIRONMENT)
    }

    pub fn identity_id(&self) -> Option<&str> {
        self.optional_text(IDENTITY_ID)
    }

    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    pub fn is_enabled(&self) -> bool {
        self.flags & IS_ENABLED != 0
    }

    pub fn expires_at(&self) -> Option<Timestamp> {
        (self.flags & HAS_EXPIRY != 0).then_some(self.expires_at)
    }

    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    pub fn read_version(&self) -> ReadVersion {
        self.read_version
    }

    pub fn workspace_id(&self) -> &WorkspaceId {
        &self.api.workspace_id
    }

    pub fn is_workspace_enabled(&self) -> bool {
        self.api.is_workspace_enabled
    }

    pub fn api_id(&self) -> &ApiId {
        &self.api.api_id
    }

    /// Returns the networks from which the key may be used. `None`: any.
    pub fn allowed_networks(&self) -> Option<&Networks> {
        self.api.allowed_networks.as_ref()
    }

    /// Returns the region that counts the limits of the key. `None`: the first region.
    pub fn home(&self) -> Option<&Home> {
        self.api.home.as_ref()
    }
}

#[cfg(test)]
pub mod tests;
