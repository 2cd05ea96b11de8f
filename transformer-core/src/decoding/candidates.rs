//! The candidates for the next token of a target.

/// The tokens that may continue a target, with their log-probabilities.
pub(super) struct Candidates<'a> {
    /// Ascending; `None` for the whole vocabulary. Unused entries at the end have the log-probability −∞.
    tokens: Option<&'a [u32]>,
    log_probs: &'a mut [f32],
}

impl<'a> Candidates<'a> {
    /// Candidates of a model's prediction, or all tokens.
    ///
    /// # Shapes
    /// - tokens: `[candidates]`, ascending
    /// - log_probs: `[candidates]`
    pub fn new(tokens: Option<&'a [u32]>, log_probs: &'a mut [f32]) -> Self {
        Self { tokens, log_probs }
    }

    pub fn log_probs(&self) -> &[f32] {
        self.log_probs
    }

    pub fn log_probs_mut(&mut self) -> &mut [f32] {
        self.log_probs
    }

    /// The token at a position of the log-probabilities.
    pub fn token(&self, at: usize) -> u32 {
        self.tokens.map_or(at as u32, |tokens| tokens[at])
    }

    /// The log-probability of a token: −∞ for one that is not a candidate.
    pub fn get(&self, token: u32) -> f32 {
        let at = self.position(token);
        at.map_or(f32::NEG_INFINITY, |at| self.log_probs[at])
    }

    /// The log-probability of a token; `None` for one that is not a candidate.
    pub fn get_mut(&mut self, token: u32) -> Option<&mut f32> {
        self.position(token).map(|at| &mut self.log_probs[at])
    }

    fn position(&self, token: u32) -> Option<usize> {
        match self.tokens {
            Some(tokens) => tokens.binary_search(&token).ok(),
            None => Some(token as usize).filter(|&at| at < self.log_probs.len()),
        }
    }
}
