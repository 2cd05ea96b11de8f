//! Translated files, which are kept in memory until they are fetched or an hour is over.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a file is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// Bytes of all files; the oldest are dropped.
const MOST: usize = 64 << 20;

/// A file.
#[derive(Debug, Clone)]
pub struct File {
    name: String,
    /// What its last part is.
    pub content: String,
    since: Instant,
}

/// The files, the oldest first.
#[derive(Debug, Default)]
pub struct Files {
    files: Mutex<VecDeque<File>>,
}

impl Files {
    /// Keeps a file under a name that cannot be guessed, and returns it.
    pub fn keep(&self, extension: &str, content: String) -> std::io::Result<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{digits}.{extension}");
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.push_back(File {
            name: name.clone(),
            content,
            since: Instant::now(),
        });
        let bytes =
            |files: &VecDeque<File>| files.iter().map(|file| file.content.len()).sum::<usize>();
        while files.len() > 1 && bytes(&files) > MOST {
            files.pop_front();
        }
        Ok(name)
    }

    /// A file, if it is still there.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.since.elapsed() < KEPT);
        files
            .iter()
            .find(|file| file.name == name)
            .map(|file| file.content.clone())
    }
}
