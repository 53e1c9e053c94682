//! Figures of one kind on a page ([`srd_net::page`]): one thread writes them, and any thread reads
//! them, without a lock.

use std::marker::PhantomData;

use srd_net::page;

use super::figure::Figure;

/// Figures of the kind `T`.
#[derive(Debug)]
pub(crate) struct Page<T> {
    page: page::Page,
    kind: PhantomData<fn() -> T>,
}

impl<T: Figure + Default> Default for Page<T> {
    fn default() -> Self {
        let page = Self { page: page::Page::new(T::WORDS), kind: PhantomData };
        page.publish(&T::default());
        page
    }
}

impl<T: Figure> Page<T> {
    /// Writes the page. Only one thread may do this.
    pub(crate) fn publish(&self, figures: &T) {
        self.page.write(|to| figures.put(&mut |word| to.put(word)));
    }

    /// Reads the page.
    pub(crate) fn read(&self) -> T {
        self.page.read(|from| T::take(&mut || from.take()))
    }
}
