//! The queue: its threads make batches of the sentences of all clients, and translate them.
//!
//! Two batches are translated at a time, so that one is tokenized, checked and sent while the other is computed. More
//! are begun only while at least [`ENOUGH`] tokens wait: more batches of the same sentences would be smaller ones, and
//! take more time together.
//!
//! A batch has sentences of one model. Its jobs are served in turn by the tokens that they have had so far, so that a
//! short text is in the next batch, however long a document is under way. A job whose client has gone is dropped before
//! its sentences are computed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use metrics::{counter, gauge, histogram};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use transformer_text::{Sentence, SentenceTranslation};

use crate::model::Model;

/// The limits of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Tokens in a batch, unless a sentence alone has more.
    pub batch_tokens: usize,
    /// Tokens that may wait. A request that would exceed them is refused, unless the queue is empty.
    pub waiting_tokens: usize,
    /// Batches that are translated at a time, at least one. The program sets the number of threads for packed models,
    /// and one for a backend that computes a batch on threads of its own or on a device.
    pub batches: usize,
}

/// The fewest waiting tokens for which a third batch, or a further one, is begun.
const ENOUGH: usize = 512;

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            batch_tokens: 2048,
            waiting_tokens: 200_000,
            batches: 2,
        }
    }
}

/// Sentences to translate.
pub struct Request {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The sentences, with the number of tokens of each.
    pub sentences: Vec<(usize, Sentence)>,
    /// Translations per sentence.
    pub n_best: usize,
}

/// A translated sentence: its index in the request, and its translation. The error is the model's.
pub type Answer = (usize, Result<SentenceTranslation, String>);

/// The request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many tokens wait.
    Full,
    /// The server is ending.
    Closing,
}

/// The queue. Copies share it.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// A job has come, or the queue is closing.
    changed: Condvar,
    limits: QueueLimits,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    /// Tokens of sentences that no batch has taken.
    waiting: usize,
    is_closing: bool,
    /// Threads that run.
    threads: usize,
    /// Threads that translate a batch.
    busy: usize,
}

struct Job {
    request: Request,
    /// The first sentence that no batch has taken.
    next: usize,
    /// Tokens that were served, counted from those of the least served job when it came.
    served: usize,
    since: Instant,
    answers: UnboundedSender<Answer>,
}

impl Job {
    fn waiting(&self) -> usize {
        let waiting = self.request.sentences[self.next..].iter();
        waiting.map(|(tokens, _)| tokens).sum()
    }

    /// Whether both can be in one batch.
    fn fits(&self, other: &Self) -> bool {
        let same_model = Arc::ptr_eq(&self.request.model, &other.request.model);
        same_model && self.request.n_best == other.request.n_best
    }
}

/// The sentences of a batch, with where their answers go.
struct Batch {
    model: Arc<dyn Model>,
    n_best: usize,
    sentences: Vec<Sentence>,
    answers: Vec<(usize, UnboundedSender<Answer>)>,
    tokens: usize,
}

impl Queue {
    /// Starts the threads that translate.
    pub fn start(limits: QueueLimits) -> Self {
        let threads = limits.batches.max(1);
        let state = State {
            threads,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            limits,
        });
        for _ in 0..threads {
            let shared = shared.clone();
            thread::spawn(move || {
                let _end = OnEnd(&shared);
                while let Some(batch) = shared.next_batch() {
                    let _busy = Busy(&shared);
                    batch.translate();
                }
            });
        }
        Self { shared }
    }

    /// Submits sentences. Their translations arrive in any order; dropping the receiver drops the request.
    ///
    /// # Errors
    /// When the queue is full or closing.
    pub fn submit(&self, request: Request) -> Result<UnboundedReceiver<Answer>, Refused> {
        let mut state = self.shared.lock();
        if state.is_closing || state.threads == 0 {
            return Err(Refused::Closing);
        }
        let tokens: usize = request.sentences.iter().map(|(tokens, _)| tokens).sum();
        let most = self.shared.limits.waiting_tokens;
        if state.waiting + tokens > most {
            // Clients that have gone leave their room to others.
            state.drop_gone();
        }
        if state.waiting > 0 && state.waiting + tokens > most {
            counter!("transformer_refused_total", "reason" => "full").increment(1);
            return Err(Refused::Full);
        }
        if request.sentences.is_empty() {
            return Ok(unbounded_channel().1);
        }
        let receiver = state.push(request);
        gauge!("transformer_queue_tokens").set(state.waiting as f64);
        self.shared.changed.notify_one();
        Ok(receiver)
    }

    /// Accepts no more requests. Those accepted are still answered.
    pub fn close(&self) {
        self.shared.lock().is_closing = true;
        self.shared.changed.notify_all();
    }

    /// Whether requests are translated: a thread runs.
    pub fn is_alive(&self) -> bool {
        self.shared.lock().threads > 0
    }
}

/// Counts a thread as busy until it is dropped, also after a panic.
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}

/// Counts a thread as ended, also after a panic.
struct OnEnd<'a>(&'a Shared);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.threads -= 1;
        if state.threads == 0 {
            // Their receivers are told.
            state.jobs.clear();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for sentences, with which the calling thread is then busy; `None` when the queue is closed and has none
    /// for another thread.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            state.drop_gone();
            match state.begin(self.limits.batch_tokens) {
                Some(batch) => {
                    gauge!("transformer_queue_tokens").set(state.waiting as f64);
                    if state.waiting > 0 {
                        // There may be enough for another thread, too.
                        self.changed.notify_one();
                    }
                    return Some(batch);
                }
                None if state.is_closing => return None,
                None => {
                    let waited = self.changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl State {
    /// Adds a job, and returns the receiver of its answers.
    fn push(&mut self, request: Request) -> UnboundedReceiver<Answer> {
        let (answers, receiver) = unbounded_channel();
        let job = Job {
            served: self.jobs.iter().map(|job| job.served).min().unwrap_or(0),
            request,
            next: 0,
            since: Instant::now(),
            answers,
        };
        self.waiting += job.waiting();
        self.jobs.push(job);
        receiver
    }

    /// Drops the jobs whose clients have gone.
    fn drop_gone(&mut self) {
        let waiting = &mut self.waiting;
        self.jobs.retain(|job| {
            let is_gone = job.answers.is_closed();
            if is_gone {
                *waiting -= job.waiting();
                counter!("transformer_refused_total", "reason" => "gone").increment(1);
            }
            !is_gone
        });
        gauge!("transformer_queue_tokens").set(self.waiting as f64);
    }

    /// The next batch, if there are enough sentences for it. A thread is then busy with it.
    fn begin(&mut self, batch_tokens: usize) -> Option<Batch> {
        if self.busy >= 2 && self.waiting < ENOUGH {
            return None;
        }
        let batch = self.take(batch_tokens)?;
        self.busy += 1;
        Some(batch)
    }

    /// The next batch: sentence by sentence, of the least served job.
    fn take(&mut self, batch_tokens: usize) -> Option<Batch> {
        let jobs = self.jobs.iter().enumerate();
        let (lead, _) = jobs.min_by_key(|(_, job)| (job.served, job.since))?;
        let mut batch = Batch {
            model: self.jobs[lead].request.model.clone(),
            n_best: self.jobs[lead].request.n_best,
            sentences: Vec::new(),
            answers: Vec::new(),
            tokens: 0,
        };
        // Jobs without waiting sentences leave at the end, so that the indices hold.
        let fits: Vec<bool> = self
            .jobs
            .iter()
            .map(|job| job.fits(&self.jobs[lead]))
            .collect();
        let mut at = Some(lead);
        while let Some(index) = at {
            let job = &mut self.jobs[index];
            let (tokens, sentence) = &job.request.sentences[job.next];
            if !batch.sentences.is_empty() && batch.tokens + tokens > batch_tokens {
                break;
            }
            if job.next == 0 {
                histogram!("transformer_queue_seconds").record(job.since.elapsed());
            }
            batch.tokens += tokens;
            batch.sentences.push(sentence.clone());
            batch.answers.push((job.next, job.answers.clone()));
            self.waiting -= tokens;
            job.served += tokens;
            job.next += 1;
            let jobs = self.jobs.iter().enumerate();
            let left =
                jobs.filter(|(index, job)| fits[*index] && job.next < job.request.sentences.len());
            at = left
                .min_by_key(|(_, job)| (job.served, job.since))
                .map(|(index, _)| index);
        }
        self.jobs
            .retain(|job| job.next < job.request.sentences.len());
        Some(batch)
    }
}

impl Batch {
    /// Translates the sentences, and sends the answers.
    fn translate(self) {
        let start = Instant::now();
        let sentences: Vec<&Sentence> = self.sentences.iter().collect();
        let model = &self.model;
        let n_best = self.n_best;
        // A panic of a model must not end the server.
        let translate = |sentences: &[&Sentence]| {
            let translated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                model.translate(sentences, n_best)
            }));
            match translated {
                Ok(translated) => translated.map_err(|error| error.to_string()),
                Err(_) => Err("the model failed".to_owned()),
            }
        };
        let translated = translate(&sentences);
        histogram!("transformer_batch_seconds").record(start.elapsed());
        histogram!("transformer_batch_tokens").record(self.tokens as f64);
        histogram!("transformer_batch_sentences").record(self.sentences.len() as f64);
        counter!("transformer_sentences_total").increment(self.sentences.len() as u64);
        counter!("transformer_tokens_total").increment(self.tokens as u64);
        // The clients may have gone.
        match translated {
            Ok(translations) => {
                for ((index, answers), translation) in self.answers.iter().zip(translations) {
                    let _ = answers.send((*index, Ok(translation)));
                }
            }
            // One by one, so that a sentence fails for its own client only.
            Err(error) => {
                for ((index, answers), &sentence) in self.answers.iter().zip(&sentences) {
                    let translated = match sentences.len() {
                        1 => Err(error.clone()),
                        _ if answers.is_closed() => continue,
                        _ => translate(&[sentence]),
                    };
                    let only = translated.and_then(|translated| {
                        let only = translated.into_iter().next();
                        only.ok_or_else(|| "the model failed".to_owned())
                    });
                    let _ = answers.send((*index, only));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::support::{Reverser, translator};
    use transformer_core::text::TextError;
    use transformer_text::{Format, Prepared, TextTranslator};

    /// A model whose batches take a while.
    fn model(delay: u64) -> (Reverser, Arc<dyn Model>) {
        let model = Reverser {
            delay: Duration::from_millis(delay),
            ..Reverser::default()
        };
        let translator = TextTranslator::new(translator(model.clone()));
        (model, Arc::new(translator))
    }

    fn request(model: &Arc<dyn Model>, text: &str) -> Request {
        let prepared = model.prepare(text, Format::Text);
        let sentences = prepared.sentences().iter();
        Request {
            model: model.clone(),
            sentences: sentences
                .map(|sentence| (model.tokens(sentence), sentence.clone()))
                .collect(),
            n_best: 1,
        }
    }

    fn limits(batch_tokens: usize, waiting_tokens: usize) -> QueueLimits {
        QueueLimits {
            batch_tokens,
            waiting_tokens,
            batches: 1,
        }
    }

    /// The text of the next answer.
    fn answer(answers: &mut UnboundedReceiver<Answer>) -> String {
        let (_, translated) = answers.blocking_recv().expect("an answer");
        translated.expect("a translation").text
    }

    /// Waits until the thread has taken a batch, and is busy with it.
    fn wait_for_a_batch(model: &Reverser) {
        while model.batches.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn clients_share_batches() {
        let (counted, model) = model(300);
        let queue = Queue::start(limits(2048, 200_000));
        let mut first = queue.submit(request(&model, "First client")).unwrap();
        wait_for_a_batch(&counted);
        let clients =
            (0..64).map(|client| queue.submit(request(&model, &format!("Client {client}"))));
        let clients: Vec<_> = clients.collect();
        assert_eq!(answer(&mut first), "CLIENT fIRST");
        for (client, answers) in clients.into_iter().enumerate() {
            assert_eq!(answer(&mut answers.unwrap()), format!("{client} cLIENT"));
        }
        assert_eq!(counted.batches.load(Ordering::Relaxed), 2);
    }

    /// Fails where a sentence is `bad`.
    struct Fails(Arc<dyn Model>);

    impl Model for Fails {
        fn prepare(&self, text: &str, format: Format) -> Prepared {
            self.0.prepare(text, format)
        }

        fn tokens(&self, sentence: &Sentence) -> usize {
            self.0.tokens(sentence)
        }

        fn translate(
            &self,
            sentences: &[&Sentence],
            n_best: usize,
        ) -> Result<Vec<SentenceTranslation>, TextError> {
            match sentences.iter().any(|sentence| sentence.text() == "bad") {
                true => Err(TextError::NoAttention),
                false => self.0.translate(sentences, n_best),
            }
        }
    }

    #[test]
    fn a_sentence_fails_for_its_own_client_only() {
        let model: Arc<dyn Model> = Arc::new(Fails(model(0).1));
        let mut state = State::default();
        let mut clients =
            ["good one", "bad", "good two"].map(|text| state.push(request(&model, text)));
        state.take(200).unwrap().translate();
        assert_eq!(answer(&mut clients[0]), "ONE GOOD");
        assert!(clients[1].blocking_recv().unwrap().1.is_err());
        assert_eq!(answer(&mut clients[2]), "TWO GOOD");
    }

    #[test]
    fn a_short_text_is_in_the_next_batch() {
        let (_, model) = model(0);
        let mut state = State::default();
        let push = |state: &mut State, text: &str| state.push(request(&model, text));
        let _document = push(&mut state, &"A sentence of the document. ".repeat(100));
        let batch = state.take(200).unwrap();
        assert!(batch.sentences.len() > 3 && batch.tokens <= 200);
        let _other = push(&mut state, &"Of another document. ".repeat(100));
        let _short = push(&mut state, "Short text");
        let batch = state.take(200).unwrap();
        let texts: Vec<&str> = batch.sentences.iter().map(Sentence::text).collect();
        assert!(texts.contains(&"Short text"), "{texts:?}");
        // The documents take turns.
        let of_document = texts
            .iter()
            .filter(|text| text.ends_with("the document."))
            .count();
        assert!(
            of_document > 1 && texts.len() - of_document > 2,
            "{texts:?}"
        );
        while state.take(200).is_some() {}
        assert_eq!(state.waiting, 0);
        assert!(state.jobs.is_empty());
    }

    #[test]
    fn two_batches_are_translated_at_a_time_and_more_of_many_tokens() {
        let (_, model) = model(0);
        let mut state = State::default();
        let short: Vec<_> = (0..3)
            .map(|_| state.push(request(&model, "Short text")))
            .collect();
        assert!(state.begin(1).is_some() && state.begin(1).is_some());
        assert!(state.begin(1).is_none());
        let _document = state.push(request(&model, &"A sentence of it. ".repeat(ENOUGH)));
        let third = state.begin(ENOUGH).unwrap();
        assert!(third.sentences.len() > 1);
        // The short text is in it.
        assert!(
            third
                .sentences
                .iter()
                .any(|sentence| sentence.text() == "Short text")
        );
        drop(short);
    }

    #[test]
    fn the_sentences_of_one_request_are_in_two_batches_at_a_time() {
        let (counted, model) = model(300);
        let queue = Queue::start(QueueLimits {
            batches: 2,
            ..limits(20, 1000)
        });
        let text = "A sentence of a document. ".repeat(10);
        let mut answers = queue.submit(request(&model, &text)).unwrap();
        while counted.batches.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        // The answers of a batch are sent before its thread takes another.
        assert!(answers.try_recv().is_err());
        for _ in 0..10 {
            answer(&mut answers);
        }
    }

    #[test]
    fn a_full_queue_refuses_and_clients_may_go() {
        let (counted, model) = model(300);
        let queue = Queue::start(limits(20, 60));
        let mut first = queue.submit(request(&model, "the first one")).unwrap();
        wait_for_a_batch(&counted);
        let text = "they will be gone";
        let gone: Vec<_> = (0..3)
            .map(|_| queue.submit(request(&model, text)).unwrap())
            .collect();
        let refused = queue.submit(request(&model, text)).err();
        assert_eq!(refused, Some(Refused::Full));
        drop(gone);
        // Their room is free at once.
        let mut last = queue.submit(request(&model, "the last one")).unwrap();
        assert_eq!(answer(&mut first), "ONE FIRST THE");
        assert_eq!(answer(&mut last), "ONE LAST THE");
        // The first and the last.
        assert_eq!(counted.batches.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn accepted_requests_are_answered_at_the_end() {
        let (_, model) = model(50);
        let queue = Queue::start(limits(20, 1000));
        let texts = (0..5).map(|index| format!("number {index}"));
        let accepted: Vec<_> = texts
            .map(|text| queue.submit(request(&model, &text)).unwrap())
            .collect();
        queue.close();
        let late = queue.submit(request(&model, "late")).err();
        assert_eq!(late, Some(Refused::Closing));
        for (index, mut answers) in accepted.into_iter().enumerate() {
            assert_eq!(answer(&mut answers), format!("{index} NUMBER"));
        }
    }
}
