#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod admission;
mod apply;
mod call;
mod clock;
mod collector;
mod connection;
mod direct;
mod fault;
mod history;
mod kubelet;
mod list;
mod managed;
mod patch;
mod pod;
mod resource;
pub mod seeds;
mod selector;
mod server;
mod site;
mod start;
mod state;
mod status;
mod store;
mod stream;
mod watch;
mod watching;
mod write;

pub use admission::Review;
pub use call::{PatchType, Verb};
pub use clock::{Clock, second};
pub use connection::Connection;
pub use direct::Direct;
pub use fault::{Callback, Decision, Plan};
pub use history::{Delivery, History, Request, Version};
pub use kubelet::{Kubelet, KubeletOptions, Run, is_selected, tolerates};
pub use resource::{Behavior, Resource};
pub use server::{Options, Server};
pub use site::Site;
pub use status::{FieldError, Status};
pub use store::ChangeKind;
pub use watch::Target;
pub use watching::Watching;

#[cfg(test)]
mod tests;
