//! Rough.
#![allow(missing_docs, clippy::all)]
use burn::lr_scheduler::LrScheduler;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use safetensors::SafeTensors;
use transformer_core::*;
use transformer_train::*;

fn data(io: &SafeTensors, name: &str) -> TensorData {
    let t = io.tensor(name).unwrap();
    match t.dtype() {
        safetensors::Dtype::F32 => TensorData::new(
            t.data()
                .chunks(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect::<Vec<_>>(),
            t.shape().to_vec(),
        ),
        safetensors::Dtype::I64 => TensorData::new(
            t.data()
                .chunks(8)
                .map(|b| i64::from_le_bytes(b.try_into().unwrap()))
                .collect::<Vec<_>>(),
            t.shape().to_vec(),
        ),
        _ => panic!(),
    }
}
fn diff(a: &TensorData, b: &TensorData) -> (f64, f64) {
    assert_eq!(a.shape, b.shape);
    let m = a
        .iter::<f64>()
        .zip(b.iter::<f64>())
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    (m, b.iter::<f64>().map(f64::abs).fold(0.0, f64::max))
}
struct G<'a> {
    io: &'a SafeTensors<'a>,
    grads: &'a GradientsParams,
    path: Vec<String>,
    worst: (f64, String),
    seen: usize,
}
impl<'a, B: AutodiffBackend> ModuleVisitor<B> for G<'a> {
    fn visit_float<const D: usize>(&mut self, p: &Param<Tensor<B, D>>) {
        let name = self.path.join(".");
        let g = self
            .grads
            .get::<B::InnerBackend, D>(p.id)
            .unwrap_or_else(|| panic!("no grad {name}"));
        let (d, m) = diff(&g.into_data(), &data(self.io, &format!("grad.{name}")));
        let r = d / (1e-4 * m + 1e-6);
        self.seen += 1;
        if r > self.worst.0 {
            self.worst = (r, format!("{name} abs {d:.2e} largest {m:.2e}"));
        }
    }
    fn enter_module(&mut self, n: &str, _: &str) {
        self.path.push(n.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
fn check<B: Backend>(sys: &str) {
    let device = B::Device::default();
    let dir = format!("/tmp/parity/{sys}");
    let bytes = std::fs::read(format!("{dir}/io.safetensors")).unwrap();
    let io = SafeTensors::deserialize(&bytes).unwrap();
    let m = Transformer::<B>::load(&dir, &device).unwrap();
    let ints = |n: &str| data(&io, n);
    let src = || Tensor::<B, 2, Int>::from_data(ints("src").convert::<B::IntElem>(), &device);
    let tgt = || Tensor::<B, 2, Int>::from_data(ints("tgt").convert::<B::IntElem>(), &device);
    let memory = m.encode(src());
    println!(
        "{sys} {}: memory {:?}",
        B::name(&device),
        diff(&memory.hidden.into_data(), &ints("memory"))
    );
    println!(
        "  logits {:?}",
        diff(&m.forward(src(), tgt()).into_data(), &ints("logits"))
    );
    let s: Vec<i64> = ints("src").iter().collect();
    let w = ints("src").shape[1];
    let srcs: Vec<Vec<u32>> = s
        .chunks(w)
        .map(|r| r.iter().map(|&x| x as u32).collect())
        .collect();
    let h = greedy(
        &m,
        &srcs,
        &GreedyOptions {
            max_length: MaxLength::Tokens(12),
        },
        &device,
    )
    .unwrap();
    let want: Vec<i64> = ints("greedy").iter().collect();
    let mut got = vec![];
    for h in &h {
        let mut r = vec![1i64];
        r.extend(h.tokens.iter().map(|&t| t as i64));
        if h.finished && r.len() < 13 {
            r.push(2);
        }
        r.resize(13, 0);
        got.extend(r);
    }
    println!("  greedy {}", got == want);

    let mut m = Transformer::<Autodiff<B>>::load(&dir, &device).unwrap();
    let src =
        || Tensor::<Autodiff<B>, 2, Int>::from_data(ints("src").convert::<B::IntElem>(), &device);
    let tgt =
        || Tensor::<Autodiff<B>, 2, Int>::from_data(ints("tgt").convert::<B::IntElem>(), &device);
    let labels = || {
        Tensor::<Autodiff<B>, 2, Int>::from_data(ints("labels").convert::<B::IntElem>(), &device)
            .flatten::<1>(0, 1)
    };
    let ce = LabelSmoothedCrossEntropy::new(0.1, 0);
    let mut opt = PaperAdam::<Transformer<Autodiff<B>>, Autodiff<B>>::new(None);
    let mut sched = noam_schedule(
        &TrainingConfig {
            warmup: 8,
            ..Default::default()
        },
        m.config().d_model,
    );
    let losses: Vec<f64> = ints("training_losses").iter().collect();
    let want_loss: f64 = ints("loss").iter().next().unwrap();
    for (i, want) in losses.iter().enumerate() {
        let logits = m.forward(src(), tgt()).flatten::<2>(0, 1);
        let loss = ce.mean(logits, labels());
        let l: f64 = loss.clone().into_data().iter().next().unwrap();
        if i == 0 {
            println!("  loss {:.2e}", (l - want_loss).abs());
        }
        print!("  [{i}] {:.1e}", (l - want).abs());
        let grads = GradientsParams::from_grads(loss.backward(), &m);
        if i == 0 {
            let mut g = G {
                io: &io,
                grads: &grads,
                path: vec![],
                worst: (0.0, String::new()),
                seen: 0,
            };
            Module::<Autodiff<B>>::visit(&m, &mut g);
            println!("  gradients {} seen, worst/bound {:?}", g.seen, g.worst);
        }
        let lr = sched.step();
        m = opt.step(lr, m, grads);
    }
    println!();
}
#[test]
fn rough() {
    for s in [
        "notebook-mini",
        "paper-readme",
        "prenorm-notebook",
        "learned-positions",
    ] {
        check::<burn_ndarray::NdArray>(s);
        #[cfg(feature = "flex")]
        check::<burn_flex::Flex>(s);
    }
}
