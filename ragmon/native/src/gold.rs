//! Gold items as a record is compared with them: `ragmon.core.gold_item.GoldItem` and `ragmon.gold.sets.Items`.

use crate::hash::{of, Map, Set};
use crate::wire::Wire;

/// The bit of an item that the corpus can answer.
pub const ANSWERABLE: u64 = 1 << 1;
/// The bit of an item that names its documents by id.
pub const HAS_GOLD_IDS: u64 = 1 << 4;

/// An id with its hash.
pub struct Id {
    /// The id.
    pub bytes: Vec<u8>,
    /// Its hash.
    pub hash: u64,
}

/// A gold item.
pub struct Item {
    /// What it provides, as bits.
    pub offers: u64,
    /// The gold set it belongs to, by number.
    pub set: u32,
    /// How many gold texts it has.
    pub texts: u32,
    /// Its gold ids.
    pub ids: Vec<Id>,
    /// Its folded claim substrings.
    pub phrases: Vec<String>,
    /// The folded phrases of its gold claim.
    pub gold_phrases: Vec<String>,
    /// The prefixes of the ids of its sections.
    pub sections: Vec<Vec<u8>>,
}

impl Item {
    fn read(wire: &mut Wire<'_>) -> Option<Item> {
        Some(Item {
            offers: u64::from(wire.number()?),
            set: wire.number()?,
            texts: wire.number()?,
            ids: wire.list(|wire| {
                wire.bytes().map(|id| Id {
                    bytes: id.to_vec(),
                    hash: of(id),
                })
            })?,
            phrases: wire.list(Wire::text)?,
            gold_phrases: wire.list(Wire::text)?,
            sections: wire.list(|wire| wire.bytes().map(<[u8]>::to_vec))?,
        })
    }

    /// Whether the corpus can answer it.
    pub fn is_answerable(&self) -> bool {
        self.offers & ANSWERABLE != 0
    }

    /// Whether it names documents by id.
    pub fn has_ids(&self) -> bool {
        self.offers & HAS_GOLD_IDS != 0
    }

    /// Whether an id is one of its gold ids.
    pub fn names(&self, id: &[u8], hash: u64) -> bool {
        self.ids.iter().any(|gold| gold.hash == hash && gold.bytes == id)
    }
}

/// How an item was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By its id.
    Qid = 0,
    /// By its question.
    Question = 1,
    /// By another wording of it.
    Paraphrase = 2,
}

/// How many ways there are to find an item.
pub const HOWS: usize = 3;

/// The items that records of a pipeline and source may match.
pub struct Items {
    items: Vec<Item>,
    by_qid: Map<Vec<u8>, u32>,
    by_question: Map<String, (u32, How)>,
    ids: Set<Vec<u8>>,
}

impl Items {
    /// The items that Python describes: each item, the ids it is found by, the questions, all gold ids.
    pub fn read(wire: &mut Wire<'_>) -> Option<Items> {
        let items = wire.list(Item::read)?;
        let by_qid = wire.list(|wire| Some((wire.bytes()?.to_vec(), wire.number()?)))?;
        let by_question = wire.list(|wire| {
            let (key, item) = (wire.text()?, wire.number()?);
            let how = if wire.number()? == 0 {
                How::Question
            } else {
                How::Paraphrase
            };
            Some((key, (item, how)))
        })?;
        let ids = wire.list(|wire| wire.bytes().map(<[u8]>::to_vec))?;
        let known = |item: u32| (item as usize) < items.len();
        if !by_qid.iter().all(|(_, item)| known(*item)) || !by_question.iter().all(|(_, (item, _))| known(*item)) {
            return None;
        }
        Some(Items {
            by_qid: by_qid.into_iter().collect(),
            by_question: by_question.into_iter().collect(),
            ids: ids.into_iter().collect(),
            items,
        })
    }

    /// The number of the item with an id.
    pub fn by_qid(&self, qid: &[u8]) -> Option<u32> {
        self.by_qid.get(qid).copied()
    }

    /// The number of the item with a question, by its key.
    pub fn by_question(&self, key: &str) -> Option<(u32, How)> {
        self.by_question.get(key).copied()
    }

    /// Whether any question is known.
    pub fn has_questions(&self) -> bool {
        !self.by_question.is_empty()
    }

    /// An item by its number.
    pub fn item(&self, number: u32) -> &Item {
        &self.items[number as usize]
    }

    /// Whether an id is a gold id of any item.
    pub fn name(&self, id: &[u8]) -> bool {
        self.ids.contains(id)
    }
}
