//! Which cases of a campaign are run: by default all of them. `PANDO_PART=3/8` runs the third
//! eighth; `PANDO_CASE=WORDS` runs those whose names contain these words. A case is the same
//! regardless of which others are run.

/// What is requested.
pub(super) struct Selection {
    /// Which of how many.
    share: (u64, u64),
    words: Option<String>,
}

impl Selection {
    /// By the environment.
    pub(super) fn asked() -> Selection {
        let share = std::env::var("PANDO_PART").ok().map(|text| {
            let numbers = text.split_once('/').map(|(part, of)| (part.parse(), of.parse()));
            let Some((Ok(part), Ok(of))) = numbers else { panic!("PANDO_PART={text}, not 3/8") };
            assert!((1..=of).contains(&part), "PANDO_PART={text}: from 1 to the number of parts");
            (part, of)
        });
        Selection { share: share.unwrap_or((1, 1)), words: std::env::var("PANDO_CASE").ok() }
    }

    /// Whether all cases are run, so that what has to be among them is.
    pub(super) fn is_all(&self) -> bool {
        self.share.1 == 1 && self.words.is_none()
    }

    /// Whether a case is run.
    pub(super) fn has(&self, number: u64, what: &str) -> bool {
        let (part, of) = self.share;
        number % of == part - 1 && self.words.as_ref().is_none_or(|words| what.contains(words))
    }
}
