//! A page of Markdown: its code blocks, and what stands between them.

/// What stands between two lines of backticks.
#[derive(Debug, Default, PartialEq)]
pub struct CodeBlock<'a> {
    /// What stands behind the backticks that open it: a language, and perhaps a mark.
    pub info: &'a str,
    /// The lines, without what the backticks are indented by.
    pub lines: Vec<&'a str>,
}

impl CodeBlock<'_> {
    pub fn language(&self) -> &str {
        self.info.split(' ').next().unwrap_or_default()
    }

    /// The second word behind the backticks.
    pub fn mark(&self) -> Option<&str> {
        self.info.split(' ').nth(1)
    }

    /// The lines, each with its end.
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [*line, "\n"]).collect()
    }
}

/// A page in its parts.
#[derive(Debug, Default, PartialEq)]
pub struct Page<'a> {
    pub blocks: Vec<CodeBlock<'a>>,
    /// What stands before, between and behind the blocks.
    pub prose: Vec<&'a str>,
}

impl<'a> Page<'a> {
    /// Takes a page apart. Panics if its last block has no end.
    pub fn parse(page: &'a str) -> Self {
        let mut parts = Self::default();
        let mut open: Option<(usize, CodeBlock<'a>)> = None;
        // Where the prose begins that is not yet in a part, and where the line begins.
        let (mut prose, mut here) = (0, 0);
        for whole in page.split_inclusive('\n') {
            let line = whole.strip_suffix('\n').unwrap_or(whole);
            let indent = line.len() - line.trim_start().len();
            let end = here + whole.len();
            match (line.trim().strip_prefix("```"), open.take()) {
                (Some(info), None) => {
                    parts.prose.push(&page[prose..here]);
                    let lines = Vec::new();
                    open = Some((indent, CodeBlock { info, lines }));
                }
                (Some(_), Some((_, block))) => {
                    parts.blocks.push(block);
                    prose = end;
                }
                (None, Some((outer, mut block))) => {
                    block.lines.push(&line[indent.min(outer)..]);
                    open = Some((outer, block));
                }
                (None, None) => {}
            }
            here = end;
        }
        assert!(open.is_none(), "a block has no end: {open:?}");
        parts.prose.push(&page[prose..]);
        parts
    }
}

/// The code blocks of a page, in their order.
pub fn code_blocks(page: &str) -> Vec<CodeBlock<'_>> {
    Page::parse(page).blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_prose_are_taken_apart() {
        let page = "a `b`\n```\nmake run\n```\nc\n- d\n  ```sh run-by:t\n  $ e <<'END'\n    f \n\n  END\n  ```\n";
        let page = Page::parse(page);
        assert_eq!(page.prose, ["a `b`\n", "c\n- d\n", ""]);
        let [plain, marked] = &page.blocks[..] else {
            panic!("{page:?}");
        };
        assert_eq!((plain.info, &plain.lines[..]), ("", &["make run"][..]));
        assert_eq!((plain.language(), plain.mark()), ("", None));
        assert_eq!(marked.text(), "$ e <<'END'\n  f \n\nEND\n");
        assert_eq!((marked.language(), marked.mark()), ("sh", Some("run-by:t")));
    }

    #[test]
    #[should_panic(expected = "a block has no end")]
    fn a_block_without_an_end_is_found() {
        code_blocks("```\na\n");
    }
}
