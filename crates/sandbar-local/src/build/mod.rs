//! Building templates from steps: each step that changes files is done in a sandbox made from the layers so far, and what it wrote becomes the next
//! layer (decision 0016).

mod cache;
mod key;
mod lines;
mod part;
mod run;
mod step;

#[cfg(test)]
mod tests;
