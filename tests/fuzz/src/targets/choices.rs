//! Choices made of the bytes of an input, so that an input without a format can be kept and read again.

/// The choices. After the end of the input they are the first of each kind.
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        byte
    }

    /// A number below `bound`, which is at most 65 536 and not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = (usize::from(self.byte()) << 8) | usize::from(self.byte());
        number % bound
    }

    /// True once in this many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub fn flag(&mut self) -> bool {
        self.one_in(2)
    }

    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// A size up to `most`: those around which loops are cut, and seldom 0.
    pub fn size(&mut self, most: usize) -> usize {
        const SIZES: [usize; 24] = [
            1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 96, 97, 130,
        ];
        if self.one_in(24) {
            return 0;
        }
        self.pick(&SIZES).min(most)
    }

    /// Numbers between -1 and 1, some of them 0.
    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        let seed = self.below(1 << 16);
        let number = |at: usize| ((at * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0;
        let mut numbers: Vec<f32> = (0..count).map(number).collect();
        if self.one_in(4) {
            numbers
                .iter_mut()
                .step_by(3)
                .for_each(|number| *number = 0.0);
        }
        numbers
    }

    /// Rows of numbers, a few of which may have one that is not ordinary: NaN, infinite, or at the ends of its type.
    pub fn rows(&mut self, rows: usize, width: usize) -> Rows {
        let mut all = Rows {
            values: self.numbers(rows * width),
            is_ordinary: vec![true; rows],
        };
        if rows * width > 0 && self.one_in(4) {
            for _ in 0..1 + self.below(3) {
                let (row, column) = (self.below(rows), self.below(width));
                all.values[row * width + column] = self.strange();
                all.is_ordinary[row] = false;
            }
        }
        all
    }

    fn strange(&mut self) -> f32 {
        self.pick(&[
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE / 2.0,
            1e30,
            -1e-30,
        ])
    }
}

/// Rows of numbers.
#[derive(Debug, Clone)]
pub struct Rows {
    pub values: Vec<f32>,
    /// Which rows have numbers between -1 and 1 only: their results must be right, whatever the others are.
    pub is_ordinary: Vec<bool>,
}

impl Rows {
    /// Whether all are.
    pub fn are_ordinary(&self) -> bool {
        self.is_ordinary.iter().all(|&is_ordinary| is_ordinary)
    }
}
