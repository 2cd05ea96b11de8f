//! Multi-head attention (§3.2): the projections, and the weighted sums of each query.

use std::sync::Arc;

use crate::nn::attention::AttentionConfig;
use crate::nn::positions::TABLE_LEN;
use crate::nn::relative_positions::row_of;
use crate::nn::rotary::turns;
use crate::packed::layers::PackedLinear;
use crate::packed::position_bias::PositionBias;
use crate::packed::state::{Memory, Reading};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::{Buffers, Products};
use transformer_cpu::rows::{self, Slots};
use transformer_cpu::sized;
use transformer_kernels::Heads;

/// Multi-head attention of a sequence to itself: in the encoder, and causal in the decoder (§3.2.3).
pub struct SelfAttention {
    /// `W^Q`, `W^K` and `W^V` side by side.
    query_key_value: PackedLinear,
    /// `W^O`
    projection: PackedLinear,
    heads: Heads,
    query_scale: Option<f32>,
    /// The bias on the scores, shared by all layers of a stack.
    bias: Option<Arc<PositionBias>>,
    key_value: Heads,
    rotary: Option<Rotary>,
    relative: Option<RelativePositions>,
}

impl SelfAttention {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &AttentionConfig,
        bias: Option<Arc<PositionBias>>,
    ) -> Result<Self, W::Error> {
        Ok(Self {
            query_key_value: PackedLinear::read(
                weights,
                &format!("{path}.query_key_value"),
                [config.d_model, config.widths().iter().sum()],
                config.bias,
            )?,
            projection: read_projection(weights, path, config)?,
            heads: config.heads(),
            query_scale: query_scale(config),
            bias,
            key_value: config.key_value_heads(),
            rotary: config
                .rotary_base
                .map(|base| Rotary::new(base, config.heads().d_k)),
            relative: match config.max_distance {
                Some(most) => Some(RelativePositions::read(weights, path, most, config)?),
                None => None,
            },
        })
    }

    /// In the encoder: each token attends to the tokens of its source that are not padding.
    ///
    /// # Shapes
    /// - x and output: `[rows, d_model]`, the tokens of all sources, source after source
    pub fn forward(
        &self,
        x: &[f32],
        sources: &[Memory],
        output: &mut Vec<f32>,
        buffers: &mut Buffers,
    ) {
        let Buffers {
            projected,
            sums,
            bias,
            placed,
            rows,
            scores,
            products,
            ..
        } = buffers;
        let [queries, width_of_sums] = widths(self.heads);
        let width = queries + slot_width(self.key_value);
        let projected = self.query_key_value.forward(x, projected, products);
        let positions = sources.iter().flat_map(|source| 0..source.len);
        self.turn(projected, positions);
        scale_queries(projected, [queries, width], self.query_scale);
        let sums = sized(sums, projected.len() / width * width_of_sums);
        let mut sums_of_rows = sums.chunks_mut(width_of_sums);
        let mut first = 0;
        for source in sources {
            let (own, attended) = (first..first + source.len * width, &source.attended);
            first = own.end;
            let own = &projected[own];
            for (position, row) in own.chunks(width).enumerate() {
                let Some(sum) = sums_of_rows.next() else {
                    break;
                };
                let position = position as u32;
                let bias = self.bias_of(position, attended.iter().copied(), bias);
                let slots = slots(own, queries, self.key_value, bias);
                let keys = attended.iter().map(|&key| (key, key));
                let (slots, attended) = match &self.relative {
                    Some(relative) => relative.place(slots, position, keys, placed, rows),
                    None => (slots, &attended[..]),
                };
                let query = &row[..queries];
                rows::attend(query, slots, attended, self.heads, sum, None, scores);
            }
        }
        self.projection.forward(sums, output, products);
    }

    /// In the decoder: caches the keys and values of new tokens, which attend to the tokens of their own target so far.
    ///
    /// # Shapes
    /// - x and output: `[rows, d_model]`, for the rows of `reading`
    pub fn forward_cached(
        &self,
        x: &[f32],
        layer: usize,
        reading: &mut Reading<'_>,
        output: &mut Vec<f32>,
        buffers: &mut Buffers,
    ) {
        let Buffers {
            projected,
            sums,
            bias,
            placed,
            rows,
            scores,
            products,
            ..
        } = buffers;
        let [queries, width_of_sums] = widths(self.heads);
        let width = queries + slot_width(self.key_value);
        let projected = self.query_key_value.forward(x, projected, products);
        self.turn(projected, reading.queries.positions());
        scale_queries(projected, [queries, width], self.query_scale);
        for (row, query) in projected.chunks(width).zip(reading.queries.iter()) {
            reading.sources[query.source].keep(layer, &row[queries..]);
        }
        let sums = sized(sums, projected.len() / width * width_of_sums);
        let each = projected.chunks(width).zip(sums.chunks_mut(width_of_sums));
        for ((row, sum), query) in each.zip(reading.queries.iter()) {
            let source = &reading.sources[query.source];
            let positions = source.positions();
            let attended = query.slots.iter();
            let keys = attended.map(|&slot| (slot, positions[slot as usize]));
            let of_keys = keys.clone().map(|(_, position)| position);
            let bias = self.bias_of(query.position, of_keys, bias);
            let slots = slots(source.key_values(layer), 0, self.key_value, bias);
            let (slots, attended) = match &self.relative {
                Some(relative) => relative.place(slots, query.position, keys, placed, rows),
                None => (slots, query.slots),
            };
            let row = &row[..queries];
            rows::attend(row, slots, attended, self.heads, sum, None, scores);
        }
        self.projection.forward(sums, output, products);
    }

    /// The bias on the scores of a query at position `query` and of keys at positions `keys`: `[keys, n_heads]`.
    fn bias_of<'b>(
        &self,
        query: u32,
        keys: impl Iterator<Item = u32>,
        buffer: &'b mut Vec<f32>,
    ) -> Option<&'b [f32]> {
        let bias = self.bias.as_ref()?;
        bias.fill(query, keys, buffer);
        Some(buffer)
    }
}

impl SelfAttention {
    /// Rotates the queries and keys of rows by their positions, if these are rotary.
    ///
    /// # Shapes
    /// - projected: `[rows, n_heads · d_k + n_kv_heads · (d_k + d_v)]`
    fn turn(&self, projected: &mut [f32], positions: impl Iterator<Item = usize>) {
        let Some(rotary) = &self.rotary else {
            return;
        };
        let ([queries, _], [keys, values]) = (widths(self.heads), widths(self.key_value));
        let rows = projected.chunks_mut(queries + keys + values);
        for (row, position) in rows.zip(positions) {
            rotary.turn(&mut row[..queries + keys], position);
        }
    }
}

/// Rotary positions; [`Rotary`](crate::nn::Rotary) has the formula.
struct Rotary {
    base: f64,
    d_k: usize,
    /// The rotations of the first positions: `[TABLE_LEN, d_k]`.
    table: Vec<f32>,
}

impl Rotary {
    fn new(base: f64, d_k: usize) -> Self {
        let table = turns(base, 0, TABLE_LEN, d_k);
        Self { base, d_k, table }
    }

    /// Rotates heads at a position: `[heads, d_k]`.
    fn turn(&self, heads: &mut [f32], position: usize) {
        match self.table.chunks_exact(self.d_k).nth(position) {
            Some(stored) => rows::turn(heads, stored),
            None => rows::turn(heads, &turns(self.base, position, 1, self.d_k)),
        }
    }
}

/// Relative positions; [`RelativePositions`](crate::nn::RelativePositions) has the formula.
struct RelativePositions {
    max_distance: usize,
    /// `[2 · max_distance + 1, d_k]`
    keys: Vec<f32>,
    /// `[2 · max_distance + 1, d_v]`
    values: Vec<f32>,
    key_value: Heads,
}

impl RelativePositions {
    fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        max_distance: usize,
        config: &AttentionConfig,
    ) -> Result<Self, W::Error> {
        let (count, heads) = (2 * max_distance + 1, config.heads());
        Ok(Self {
            max_distance,
            keys: weights.numbers(&format!("{path}.relative.keys"), count * heads.d_k)?,
            values: weights.numbers(&format!("{path}.relative.values"), count * heads.d_v)?,
            key_value: config.key_value_heads(),
        })
    }

    /// Copies keys and values with the vectors for their distances from a query. Returns the copies and their numbers.
    ///
    /// - keys: the slot and the position of each
    fn place<'b>(
        &self,
        slots: Slots<'b>,
        query: u32,
        keys: impl Iterator<Item = (u32, u32)>,
        placed: &'b mut Vec<f32>,
        rows: &'b mut Vec<u32>,
    ) -> (Slots<'b>, &'b [u32]) {
        let [d_keys, d_values] = widths(self.key_value);
        placed.clear();
        rows.clear();
        for (row, (slot, position)) in keys.enumerate() {
            let own = &slots.rows[slot as usize * slots.stride..][..slots.stride];
            let distance = i64::from(position) - i64::from(query);
            let at = row_of(distance, self.max_distance);
            for (first, width, table, d) in [
                (slots.keys, d_keys, &self.keys, self.key_value.d_k),
                (slots.values, d_values, &self.values, self.key_value.d_v),
            ] {
                let added = table[at * d..][..d].iter().cycle();
                let sums = own[first..][..width].iter().zip(added);
                placed.extend(sums.map(|(own, added)| own + added));
            }
            rows.push(row as u32);
        }
        let slots = Slots {
            rows: placed,
            stride: d_keys + d_values,
            keys: 0,
            values: d_keys,
            ..slots
        };
        (slots, rows)
    }
}

/// Multi-head attention from the decoder's tokens to the memory (§3.2.3).
pub struct CrossAttention {
    /// `W^Q`
    query: PackedLinear,
    /// `W^K` and `W^V` side by side.
    key_value: PackedLinear,
    /// `W^O`
    projection: PackedLinear,
    heads: Heads,
    query_scale: Option<f32>,
    memory: Heads,
}

impl CrossAttention {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &AttentionConfig,
    ) -> Result<Self, W::Error> {
        let (d_model, bias) = (config.d_model, config.bias);
        let [queries, keys, values] = config.widths();
        let mut linear = |part, d_output| {
            PackedLinear::read(
                weights,
                &format!("{path}.{part}"),
                [d_model, d_output],
                bias,
            )
        };
        Ok(Self {
            query: linear("query", queries)?,
            key_value: linear("key_value", keys + values)?,
            projection: read_projection(weights, path, config)?,
            heads: config.heads(),
            query_scale: query_scale(config),
            memory: config.key_value_heads(),
        })
    }

    /// Keys and values of a memory, computed once for any number of decoded tokens.
    ///
    /// # Shapes
    /// - memory: `[rows, d_model]`
    /// - output: `[rows, n_kv_heads · (d_k + d_v)]`
    pub fn project_memory<'o>(
        &self,
        memory: &[f32],
        out: &'o mut Vec<f32>,
        products: &mut Products,
    ) -> &'o [f32] {
        self.key_value.forward(memory, out, products)
    }

    /// Each row attends to the tokens of its source that are not padding.
    ///
    /// # Shapes
    /// - x and output: `[rows, d_model]`, for the rows of `reading`
    pub fn forward(
        &self,
        x: &[f32],
        layer: usize,
        reading: &mut Reading<'_>,
        output: &mut Vec<f32>,
        buffers: &mut Buffers,
    ) {
        let Buffers {
            projected,
            sums,
            scores,
            products,
            ..
        } = buffers;
        let [queries, width_of_sums] = widths(self.heads);
        let projected = self.query.forward(x, projected, products);
        scale_queries(projected, [queries, queries], self.query_scale);
        let sums = sized(sums, projected.len() / queries * width_of_sums);
        let each = projected.chunks(queries);
        let each = each.zip(sums.chunks_mut(width_of_sums));
        let mut attention = reading.attention.chunks_mut(reading.src_len.max(1));
        for ((row, sum), query) in each.zip(reading.queries.iter()) {
            let memory = reading.sources[query.source].memory();
            let attended = &memory.attended;
            let slots = slots(&memory.key_values[layer], 0, self.memory, None);
            let weights = attention.next().map(|row| &mut row[..attended.len()]);
            rows::attend(row, slots, attended, self.heads, sum, weights, scores);
        }
        self.projection.forward(sums, output, products);
    }
}

fn read_projection<W: NamedWeights>(
    weights: &mut W,
    path: &str,
    config: &AttentionConfig,
) -> Result<PackedLinear, W::Error> {
    let sizes = [config.width_of_sums(), config.d_model];
    let path = format!("{path}.heads.projection");
    PackedLinear::read(weights, &path, sizes, config.bias)
}

/// The factor on queries that cancels the division of scores by √d_k; `None` where scores are divided.
fn query_scale(config: &AttentionConfig) -> Option<f32> {
    let root = (config.heads().d_k as f64).sqrt() as f32;
    (!config.scaled).then_some(root)
}

/// Multiplies the queries, in the first columns of each row, by the scale: `[rows, width]`.
fn scale_queries(rows: &mut [f32], [queries, width]: [usize; 2], scale: Option<f32>) {
    let Some(scale) = scale else { return };
    for row in rows.chunks_mut(width) {
        row[..queries].iter_mut().for_each(|query| *query *= scale);
    }
}

/// Width of the keys, or queries, of all heads, and of their values.
fn widths(Heads { n_heads, d_k, d_v }: Heads) -> [usize; 2] {
    [n_heads * d_k, n_heads * d_v]
}

/// Width of a slot: keys and values.
fn slot_width(heads: Heads) -> usize {
    widths(heads).iter().sum()
}

/// Rows as slots: the keys of all heads start at `column`, and the values at the end of the row follow.
fn slots<'a>(rows: &'a [f32], column: usize, heads: Heads, bias: Option<&'a [f32]>) -> Slots<'a> {
    let [keys, values] = widths(heads);
    Slots {
        rows,
        stride: column + keys + values,
        n_heads: heads.n_heads,
        keys: column,
        values: column + keys,
        bias,
    }
}
