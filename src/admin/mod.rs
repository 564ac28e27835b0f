//! The admin API and the dashboard, over HTTP/1.1. Runs on the control thread; reads snapshots, and asks the
//! router for changes through [`Router`]. Every path stands in [`routes::ROUTES`], with who may use it.

mod ask;
mod dashboard;
mod dead_letters;
mod guard;
mod health;
mod look;
mod messages;
mod openapi;
mod pools;
mod port;
mod practice;
mod refusal;
pub mod routes;
mod samples;
pub mod seed;
mod serve;
mod token;
mod warnings;

pub use port::{
    DeadLetters, Explanation, Fact, GroupsBy, InflightFilter, Page, PoolChange, Publish, Published,
    RateChange, Router, RouterError,
};
pub use serve::{Admin, Settings, SettingsError};
pub use token::{Token, TokenError};
