use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pulp::{Scalar, Simd};

use super::dot::Dot;
use super::dot::portable::Portable;
#[cfg(target_arch = "x86_64")]
use super::dot::{Bytes, avx2::Avx2, vnni};
use super::quantize::INPUTS;
use super::rows::quantized_rows;
use super::*;
#[cfg(target_arch = "x86_64")]
use crate::amx::Amx;

/// Small integers, whose products and sums are exact.
fn whole(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 37 + seed * 11) % 17) as f32 - 8.0;
    (0..count).map(number).collect()
}

/// Distinct values between -1 and 1.
fn fractions(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0;
    (0..count).map(number).collect()
}

const LAYOUTS: [WeightLayout; 2] = [WeightLayout::InputByOutput, WeightLayout::OutputByInput];

/// A weight `[d_input, d_output]` in a memory layout.
fn laid_out(weight: &[f32], [d_input, d_output]: [usize; 2], layout: WeightLayout) -> Vec<f32> {
    match layout {
        WeightLayout::InputByOutput => weight.to_vec(),
        WeightLayout::OutputByInput => (0..d_output)
            .flat_map(|output| (0..d_input).map(move |input| weight[input * d_output + output]))
            .collect(),
    }
}

fn product(
    matrix: &PackedMatrix,
    x: &[f32],
    rows: usize,
    bias: Option<&[f32]>,
    threads: Threads,
) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows * matrix.d_output()];
    let mut buffer = ProductBuffer::default();
    matrix.product(x, bias, &mut out, &mut buffer, threads);
    out
}

/// `x W + b` in double precision.
fn exact(x: &[f32], weight: &[f32], bias: Option<&[f32]>, sizes: [usize; 3]) -> Vec<f64> {
    let [rows, d_input, d_output] = sizes;
    let mut out = vec![0.0; rows * d_output];
    for row in 0..rows {
        for output in 0..d_output {
            let terms = (0..d_input).map(|input| {
                f64::from(x[row * d_input + input]) * f64::from(weight[input * d_output + output])
            });
            let bias = bias.map_or(0.0, |bias| f64::from(bias[output]));
            out[row * d_output + output] = terms.sum::<f64>() + bias;
        }
    }
    out
}

#[test]
fn products_of_all_sizes_are_exact() {
    for rows in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25] {
        for [d_input, d_output] in [
            [0, 33],
            [3, 0],
            [1, 1],
            [5, 15],
            [7, 16],
            [4, 17],
            [9, 31],
            [8, 32],
            [3, 33],
            [6, 96],
            [17, 131],
            [5, 200],
        ] {
            let (x, weight) = (whole(rows * d_input, 1), whole(d_input * d_output, 2));
            let numbers = whole(d_output, 3);
            for (layout, bias) in LAYOUTS
                .into_iter()
                .flat_map(|l| [(l, None), (l, Some(&*numbers))])
            {
                let sizes = [d_input, d_output];
                let laid_out = laid_out(&weight, sizes, layout);
                let packed = PackedMatrix::new(&laid_out, sizes, layout, PackedPrecision::F32);
                let found = product(&packed, &x, rows, bias, Threads::This);
                let found: Vec<f64> = found.into_iter().map(f64::from).collect();
                let expected = exact(&x, &weight, bias, [rows, d_input, d_output]);
                assert_eq!(
                    found, expected,
                    "{rows} rows, {sizes:?}, {layout:?}, {bias:?}"
                );
            }
        }
    }
}

/// With each instruction set of this processor.
#[test]
fn narrower_vectors_compute_the_same() {
    for rows in [1, 2, 3, 4, 5, 6, 7, 11, 13] {
        let sizes = [23, 75];
        let (x, weight) = (whole(rows * 23, 1), whole(23 * 75, 2));
        let bias = whole(75, 3);
        let expected = exact(&x, &weight, Some(&bias), [rows, 23, 75]);
        let panels = FloatPanels::new(&weight, sizes, WeightLayout::InputByOutput);
        let check = |level: &str, run: &dyn Fn(float::Product<'_>)| {
            let mut out = vec![f32::NAN; rows * 75];
            let part = whole_product(&mut out, rows, &bias);
            run(panels.part(&x, part));
            let found: Vec<f64> = out.into_iter().map(f64::from).collect();
            assert_eq!(found, expected, "{rows} rows, {level}");
        };
        check("portable", &|product| Scalar.vectorize(product));
        #[cfg(target_arch = "x86_64")]
        {
            use pulp::x86::{V3, V4};
            match V3::try_new() {
                Some(simd) => check("AVX2", &|product| Simd::vectorize(simd, product)),
                None => println!("not run on AVX2: this processor has none"),
            }
            match V4::try_new() {
                Some(simd) => check("AVX-512", &|product| Simd::vectorize(simd, product)),
                None => println!("not run on AVX-512: this processor has none"),
            }
        }
    }
}

/// All columns of a result.
fn whole_product<'a>(out: &'a mut [f32], rows: usize, bias: &'a [f32]) -> Part<'a> {
    Part {
        first_panel: 0,
        bias: Some(bias),
        out: Columns::new(out, rows, bias.len()),
    }
}

#[test]
fn a_row_does_not_depend_on_the_others_or_on_threads() {
    // Large enough for several threads; the last panel is partial.
    let sizes = [515, 301];
    let weight = fractions(515 * 301, 1);
    let (x, bias) = (fractions(29 * 515, 2), fractions(301, 3));
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        let packed = PackedMatrix::new(&weight, sizes, WeightLayout::InputByOutput, precision);
        let by = |rows: Range<usize>, threads| {
            let count = rows.len();
            let x = &x[rows.start * 515..rows.end * 515];
            product(&packed, x, count, Some(&bias), threads)
        };
        let together = by(0..29, Threads::This);
        assert_eq!(by(0..29, Threads::All), together, "{precision:?}");
        for count in 1..13 {
            let some = by(3..3 + count, Threads::This);
            assert_eq!(
                some,
                together[3 * 301..(3 + count) * 301],
                "{count} rows, {precision:?}"
            );
        }
    }
}

#[test]
fn numbers_in_8_bits_are_the_same_on_all_instructions() {
    for rows in [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 33, 50] {
        for [d_input, d_output] in [[1, 1], [3, 33], [4, 32], [130, 75], [64, 96], [192, 65]] {
            // Rows at both ends of the range would overflow 16 bits.
            let mut x = fractions(rows * d_input, 1);
            x.iter_mut().step_by(3).for_each(|x| *x = x.signum());
            let mut weight = fractions(d_input * d_output, 2);
            weight.iter_mut().step_by(2).for_each(|w| *w = w.signum());
            let bias = fractions(d_output, 3);
            let expected = by_plain_loops(&x, &weight, &bias, [rows, d_input, d_output]);
            let layout = WeightLayout::OutputByInput;
            let panels = Int8Panels::quantized(&weight, [d_input, d_output], layout);
            let mut buffer = ProductBuffer::default();
            let check = |level: &str, run: &mut dyn FnMut(Part<'_>)| {
                let mut out = vec![f32::NAN; rows * d_output];
                run(whole_product(&mut out, rows, &bias));
                assert_eq!(out, expected, "{rows} x {d_input} x {d_output}, {level}");
            };
            let words = buffer.words.quantize(&x, [rows, d_input]);
            check("portable", &mut |part| {
                Portable.run(panels.part(words, part))
            });
            check("best for words", &mut |part| panels.part(words, part).run());
            #[cfg(target_arch = "x86_64")]
            {
                let bytes = buffer.bytes.quantize(&x, [rows, d_input]);
                match Avx2::new() {
                    Some(avx2) => check("AVX2", &mut |part| avx2.run(panels.part(words, part))),
                    None => println!("not run on AVX2: this processor has none"),
                }
                match vnni::Avx2::new() {
                    Some(vnni) => check("AVX-VNNI", &mut |part| vnni.run(panels.part(bytes, part))),
                    None => println!("not run on AVX-VNNI: this processor has none"),
                }
                match vnni::Avx512::new() {
                    Some(vnni) => check("AVX512-VNNI", &mut |part| {
                        vnni.run(panels.part(bytes, part))
                    }),
                    None => println!("not run on AVX512-VNNI: this processor has none"),
                }
                match Bytes::new() {
                    Some(best) => check("best for bytes", &mut |part| {
                        panels.part(bytes, part).run(best)
                    }),
                    None => println!("not run on bytes: rows of 16 bits are faster, or selected"),
                }
                match Amx::new() {
                    // Enough rows for AMX, and inputs that fill whole tiles.
                    Some(_) if amx::suits(rows, d_input).is_none() => {}
                    Some(amx) => check("AMX", &mut |part| amx::run(panels.part(bytes, part), amx)),
                    None => println!("not run on AMX: this processor has none"),
                }
            }
            let packed =
                PackedMatrix::new(&weight, [d_input, d_output], layout, PackedPrecision::Int8);
            let found = product(&packed, &x, rows, Some(&bias), Threads::This);
            assert_eq!(found, expected, "{rows} x {d_input} x {d_output}");
        }
    }
}

/// The definition: integer sums, times both scales. The weight is `[d_output, d_input]`.
fn by_plain_loops(x: &[f32], weight: &[f32], bias: &[f32], sizes: [usize; 3]) -> Vec<f32> {
    let [rows, d_input, d_output] = sizes;
    let (x, x_scales) = quantized_rows(x, d_input);
    let (weight, scales) = quantized_rows(weight, d_input);
    let mut out = vec![];
    for row in 0..rows {
        for output in 0..d_output {
            let x = &x[row * d_input..][..d_input];
            let weight = &weight[output * d_input..][..d_input];
            let products = x
                .iter()
                .zip(weight)
                .map(|(&x, &w)| i32::from(x) * i32::from(w));
            let sum = products.sum::<i32>() as f32;
            out.push(sum * scales[output] * x_scales[row] + bias[output]);
        }
    }
    out
}

/// A vector would extend beyond them.
#[test]
fn weights_and_sums_of_another_number_of_columns_are_refused() {
    refuse(Portable);
    #[cfg(target_arch = "x86_64")]
    {
        match Avx2::new() {
            Some(avx2) => refuse(avx2),
            None => println!("not run on AVX2: this processor has none"),
        }
        match vnni::Avx2::new() {
            Some(vnni) => refuse(vnni),
            None => println!("not run on AVX-VNNI: this processor has none"),
        }
        match vnni::Avx512::new() {
            Some(vnni) => refuse(vnni),
            None => println!("not run on AVX512-VNNI: this processor has none"),
        }
    }
}

fn refuse<D: Dot>(dot: D) {
    for columns in [0, D::COLUMNS - 1, D::COLUMNS + 1] {
        let weights = vec![[0; INPUTS]; columns];
        let read = catch_unwind(AssertUnwindSafe(|| dot.weights(&weights)));
        let mut sums = vec![0; columns];
        let written = catch_unwind(AssertUnwindSafe(|| dot.store(dot.zeros(), &mut sums)));
        assert!(
            read.is_err() && written.is_err(),
            "{columns} for {}",
            D::COLUMNS
        );
    }
}

/// x, bias and output are surrounded by NaN, which would propagate to any result that reads it, and must not be
/// overwritten. None of them begins at a vector boundary.
#[test]
fn nothing_else_is_read_or_written() {
    for rows in [1, 2, 3, 4, 5, 11, 13] {
        for sizes in [[1, 1], [3, 31], [6, 33], [17, 131]] {
            let [d_input, d_output] = sizes;
            let weight = whole(d_input * d_output, 2);
            let (x, bias) = (whole(rows * d_input, 1), whole(d_output, 3));
            for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
                let packed = PackedMatrix::new(&weight, sizes, LAYOUTS[0], precision);
                let expected = product(&packed, &x, rows, Some(&bias), Threads::This);
                let [x, bias] = [&x, &bias].map(|numbers| framed(numbers));
                let mut out = framed(&vec![0.0; rows * d_output]);
                let within = |numbers: &[f32]| FRAME..numbers.len() - FRAME;
                let written = within(&out);
                packed.product(
                    &x[within(&x)],
                    Some(&bias[within(&bias)]),
                    &mut out[written.clone()],
                    &mut ProductBuffer::default(),
                    Threads::This,
                );
                let name = format!("{rows} rows, {sizes:?}, {precision:?}");
                assert_eq!(out[written.clone()], expected, "{name}");
                let mut others = out[..written.start].iter().chain(&out[written.end..]);
                assert!(others.all(|y| y.is_nan()), "{name}");
            }
        }
    }
}

/// Values on each side.
const FRAME: usize = 3;

fn framed(numbers: &[f32]) -> Vec<f32> {
    let frame = [f32::NAN; FRAME];
    [&frame[..], numbers, &frame[..]].concat()
}

#[test]
fn without_inputs_nothing_is_packed_for_any_number_of_outputs() {
    let precision = PackedPrecision::F32;
    let packed = PackedMatrix::new(&[], [0, 1 << 40], LAYOUTS[0], precision);
    packed.read_output((1 << 40) - 1, &mut []);
}

#[test]
fn numbers_in_8_bits_are_near_the_exact_ones() {
    let [rows, d_input, d_output] = [5, 300, 70];
    let (x, weight) = (
        fractions(rows * d_input, 1),
        fractions(d_input * d_output, 2),
    );
    let expected = exact(&x, &weight, None, [rows, d_input, d_output]);
    for layout in LAYOUTS {
        let sizes = [d_input, d_output];
        let weight = laid_out(&weight, sizes, layout);
        let packed = PackedMatrix::new(&weight, sizes, layout, PackedPrecision::Int8);
        assert_eq!(packed.precision(), PackedPrecision::Int8);
        let found = product(&packed, &x, rows, None, Threads::This);
        // Each operand is off by at most half a step of 1/127, so by 1/√12 of a step as root mean square. The
        // error of a sum of 300 products, whose operands have mean square 1/3, is within six standard deviations.
        let step = 1.0 / 127.0 / 12.0_f64.sqrt();
        let bound = 6.0 * (2.0 * 300.0 / 3.0_f64).sqrt() * step;
        for (found, expected) in found.iter().zip(&expected) {
            let error = (f64::from(*found) - expected).abs();
            assert!(error < bound, "{found} for {expected}, bound {bound}");
        }
    }
}

#[test]
fn weights_in_8_bits_are_packed_as_they_are() {
    let sizes = [37, 45];
    let weight = fractions(37 * 45, 1);
    let x = fractions(3 * 37, 2);
    let layout = WeightLayout::OutputByInput;
    let packed = PackedMatrix::new(&weight, sizes, layout, PackedPrecision::Int8);
    let (q, scales) = quantized_rows(&weight, 37);
    let again = PackedMatrix::from_int8(&q, &scales, sizes);
    assert_eq!(again.precision(), PackedPrecision::Int8);
    assert_eq!([again.d_input(), again.d_output()], sizes);
    let by = |packed: &PackedMatrix| product(packed, &x, 3, None, Threads::This);
    assert_eq!(by(&again), by(&packed));
    // -128 may come from a file.
    let lowest = PackedMatrix::from_int8(&[-128; 8], &[0.5], [8, 1]);
    assert_eq!(
        product(&lowest, &[-127.0; 8], 1, None, Threads::This),
        [65_024.0]
    );
}

#[test]
fn outputs_are_read_back() {
    let sizes = [10, 70];
    let weight = whole(10 * 70, 1);
    for layout in LAYOUTS {
        let laid_out = laid_out(&weight, sizes, layout);
        for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
            let packed = PackedMatrix::new(&laid_out, sizes, layout, precision);
            let bound = if precision == PackedPrecision::F32 {
                0.0
            } else {
                8.0 / 254.0
            };
            for output in [0, 31, 32, 69] {
                let mut read = [f32::NAN; 10];
                packed.read_output(output, &mut read);
                for (input, found) in read.into_iter().enumerate() {
                    let error = (found - weight[input * 70 + output]).abs();
                    assert!(
                        error <= bound,
                        "{found}, {output}, {layout:?}, {precision:?}"
                    );
                }
            }
        }
    }
}

/// Of sizes around those of panels and groups, in another order, with repetitions.
#[test]
fn selected_outputs_have_the_same_results() {
    let outputs: Vec<u32> = (0..77).map(|at| at * 29 % 70).collect();
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        for d_input in [1, 6, 33] {
            let sizes = [d_input, 70];
            let weight = fractions(d_input * 70, 3);
            let packed = PackedMatrix::new(&weight, sizes, LAYOUTS[0], precision);
            let x = fractions(5 * d_input, 4);
            let all = product(&packed, &x, 5, None, Threads::This);
            for count in [0, 1, 32, 33, 77] {
                let outputs = &outputs[..count];
                let selected = packed.select(outputs);
                assert_eq!([selected.d_input(), selected.d_output()], [d_input, count]);
                assert_eq!(selected.precision(), packed.precision());
                let found = product(&selected, &x, 5, None, Threads::This);
                let rows = all.chunks(70);
                let expected =
                    rows.flat_map(|row| outputs.iter().map(|&output| row[output as usize]));
                assert_eq!(found, expected.collect::<Vec<f32>>());
            }
        }
    }
}

#[test]
#[should_panic(expected = "output 3 of a weight with 2")]
fn an_output_that_a_weight_does_not_have_is_not_selected() {
    PackedMatrix::new(&[0.0; 6], [3, 2], LAYOUTS[0], PackedPrecision::F32).select(&[1, 3]);
}

#[test]
fn a_row_that_is_not_finite_is_not_a_number_alone() {
    let weight = fractions(20 * 33, 1);
    for (precision, number) in [
        (PackedPrecision::Int8, f32::NAN),
        (PackedPrecision::Int8, f32::INFINITY),
        (PackedPrecision::Int8, f32::NEG_INFINITY),
        (PackedPrecision::F32, f32::NAN),
    ] {
        let layout = WeightLayout::InputByOutput;
        let packed = PackedMatrix::new(&weight, [20, 33], layout, precision);
        let mut x = fractions(3 * 20, 2);
        x[20 + 7] = number;
        let found = product(&packed, &x, 3, None, Threads::This);
        for (at, y) in found.into_iter().enumerate() {
            assert_eq!(
                y.is_nan(),
                at / 33 == 1,
                "{y} at {at}, {precision:?}, {number}"
            );
        }
    }
    // Weights of one output.
    let mut weight = weight;
    weight[4 * 33 + 5] = f32::INFINITY;
    let layout = WeightLayout::InputByOutput;
    let packed = PackedMatrix::new(&weight, [20, 33], layout, PackedPrecision::Int8);
    let found = product(&packed, &fractions(20, 2), 1, None, Threads::This);
    for (output, y) in found.into_iter().enumerate() {
        assert_eq!(y.is_nan(), output == 5, "{y}, {output}");
    }
}

#[test]
fn rows_of_zeros_and_of_the_smallest_numbers_are_zeros() {
    let rows = [
        [0.0, -0.0, 0.0],
        [1e-44, -1e-44, 1e-40],
        [f32::MAX, f32::MIN, 1.0],
    ];
    let (q, scales) = quantized_rows(rows.as_flattened(), 3);
    assert_eq!(q, [0, 0, 0, 0, 0, 0, 127, -127, 0]);
    assert_eq!(scales, [0.0, 0.0, f32::MAX / 127.0]);
    let packed = PackedMatrix::from_int8(&[1, 2, 3], &[1.0], [3, 1]);
    let found = product(
        &packed,
        &rows.as_flattened()[..6],
        2,
        Some(&[7.0]),
        Threads::This,
    );
    assert_eq!(found, [7.0, 7.0]);
    let (layout, precision) = (WeightLayout::InputByOutput, PackedPrecision::Int8);
    let nothing = PackedMatrix::new(&[], [0, 33], layout, precision);
    let found = product(&nothing, &[], 2, Some(&[7.0; 33]), Threads::This);
    assert_eq!(found, [7.0; 66]);
    assert_eq!(quantized_rows(&[], 0), (vec![], vec![]));
}

#[test]
fn every_number_is_rounded_to_the_nearest_step() {
    let x = fractions(1001, 1);
    let (q, scales) = quantized_rows(&x, 1001);
    for (x, q) in x.iter().zip(q) {
        let error = (x - scales[0] * f32::from(q)).abs() / scales[0];
        assert!(error < 0.5001, "{x} is {q}");
    }
}

#[test]
fn sums_that_could_overflow_stay_in_single_precision() {
    let d_input = i32::MAX as usize / (255 * 128) + 1;
    let precision = PackedPrecision::Int8;
    let layout = WeightLayout::OutputByInput;
    let most = PackedMatrix::new(&vec![1.0; d_input - 1], [d_input - 1, 1], layout, precision);
    assert_eq!(most.precision(), PackedPrecision::Int8);
    let x = vec![1.0; d_input];
    let found = product(&most, &x[1..], 1, None, Threads::This);
    assert!(
        (found[0] / (d_input - 1) as f32 - 1.0).abs() < 1e-6,
        "{found:?}"
    );
    let more = PackedMatrix::new(&x, [d_input, 1], layout, precision);
    assert_eq!(more.precision(), PackedPrecision::F32);
    let more = PackedMatrix::from_int8(&vec![2; d_input], &[0.5], [d_input, 1]);
    assert_eq!(more.precision(), PackedPrecision::F32);
    assert_eq!(product(&more, &x, 1, None, Threads::This), [d_input as f32]);
}

#[test]
#[should_panic(expected = "lengths of x and of the output, for 2 rows and a weight [3, 2]")]
fn an_output_of_another_size_is_refused() {
    let packed = PackedMatrix::new(&[0.0; 6], [3, 2], LAYOUTS[0], PackedPrecision::F32);
    let mut buffer = ProductBuffer::default();
    packed.product(&[0.0; 6], None, &mut [0.0; 5], &mut buffer, Threads::This);
}

#[test]
#[should_panic(expected = "length of the bias")]
fn a_bias_of_another_size_is_refused() {
    let packed = PackedMatrix::new(&[0.0; 6], [3, 2], LAYOUTS[0], PackedPrecision::F32);
    let mut buffer = ProductBuffer::default();
    packed.product(
        &[0.0; 3],
        Some(&[0.0]),
        &mut [0.0; 2],
        &mut buffer,
        Threads::This,
    );
}
