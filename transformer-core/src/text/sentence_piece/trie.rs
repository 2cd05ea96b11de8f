//! A trie: finds the texts with which a text begins.

use std::ops::Range;

/// A trie of texts by their bytes, each with a number.
#[derive(Debug)]
pub(in crate::text) struct Trie {
    /// The root first; the children of a node are adjacent, in the order of their bytes.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The byte that leads to the node.
    byte: u8,
    n_children: u16,
    first_child: u32,
    /// The number of the text that ends here.
    number: Option<u32>,
}

impl Node {
    fn new(byte: u8) -> Self {
        Self {
            byte,
            n_children: 0,
            first_child: 0,
            number: None,
        }
    }
}

impl Trie {
    /// A trie of distinct texts.
    pub fn new<'a>(texts: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let texts = texts.into_iter();
        let mut texts: Vec<_> = texts.map(|(text, n)| (text.as_bytes(), n)).collect();
        texts.sort_unstable();
        let mut nodes = vec![Node::new(0)];
        // For each node, the texts that begin with its bytes, and the number of these bytes.
        let mut below = vec![(0..texts.len(), 0)];
        let mut node = 0;
        while let Some((Range { mut start, end }, depth)) = below.get(node).cloned() {
            // The shortest comes first.
            while start < end && texts[start].0.len() == depth {
                nodes[node].number = Some(texts[start].1);
                start += 1;
            }
            nodes[node].first_child = nodes.len() as u32;
            while start < end {
                let byte = texts[start].0[depth];
                let same = texts[start..end].partition_point(|(text, _)| text[depth] == byte);
                nodes.push(Node::new(byte));
                nodes[node].n_children += 1;
                below.push((start..start + same, depth + 1));
                start += same;
            }
            node += 1;
        }
        Self { nodes }
    }

    /// Lengths and numbers of the texts in the trie that a text begins with, shortest first.
    pub fn prefixes(&self, text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
        let mut node = 0;
        let nodes = text.iter().map_while(move |&byte| {
            node = self.child(node, byte)?;
            Some(self.nodes[node].number)
        });
        let lengths = nodes.zip(1..);
        lengths.filter_map(|(number, length)| Some((length, number?)))
    }

    /// The length of the longest text in the trie that a text begins with.
    pub fn longest(&self, text: &[u8]) -> Option<usize> {
        self.prefixes(text).last().map(|(length, _)| length)
    }

    /// The number of a text.
    pub fn get(&self, text: &[u8]) -> Option<u32> {
        let node = text
            .iter()
            .try_fold(0, |node, &byte| self.child(node, byte))?;
        self.nodes[node].number
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let Node {
            first_child,
            n_children,
            ..
        } = self.nodes[node];
        let first = first_child as usize;
        let children = &self.nodes[first..first + usize::from(n_children)];
        let found = children.binary_search_by_key(&byte, |child| child.byte);
        found.ok().map(|index| first + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_their_beginnings() {
        let texts = ["ab", "a", "abcd", "b", "▁", "▁a"];
        let trie = Trie::new(texts.into_iter().zip(0..));
        let prefixes = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(prefixes("abcde"), [(1, 1), (2, 0), (4, 2)]);
        assert_eq!(prefixes("abc"), [(1, 1), (2, 0)]);
        assert_eq!(prefixes("▁ab"), [(3, 4), (4, 5)]);
        assert_eq!(prefixes("c"), []);
        assert_eq!(prefixes(""), []);
        assert_eq!(trie.longest(b"abcd"), Some(4));
        assert_eq!(trie.longest(b"xab"), None);
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(trie.get(text.as_bytes()), Some(number as u32));
        }
        for other in ["", "abc", "abcde", "\u{2580}"] {
            assert_eq!(trie.get(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn an_empty_trie_finds_nothing() {
        let trie = Trie::new([]);
        assert_eq!(trie.longest(b"a"), None);
        assert_eq!(trie.get(b""), None);
    }

    #[test]
    fn a_node_may_have_a_child_for_every_byte_of_utf_8() {
        let texts: Vec<String> = ('\u{1}'..='\u{7ff}').map(String::from).collect();
        let trie = Trie::new(texts.iter().map(String::as_str).zip(0..));
        for (text, number) in texts.iter().zip(0..) {
            assert_eq!(trie.get(text.as_bytes()), Some(number));
        }
    }
}
