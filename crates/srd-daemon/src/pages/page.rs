//! A page ([`srd_net::page`]) for statistics of one type: one thread writes it, and any thread
//! reads it, without a lock.

use std::marker::PhantomData;

use srd_net::page;

use super::figure::Figure;

/// A page that contains a value of type `T`.
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
    /// Writes a value to the page. Only one thread may do this.
    pub(crate) fn publish(&self, figures: &T) {
        self.page.write(|to| figures.put(&mut |word| to.put(word)));
    }

    /// Reads the value that was written last.
    pub(crate) fn read(&self) -> T {
        self.page.read(|from| T::take(&mut || from.take()))
    }
}
