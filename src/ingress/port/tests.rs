//! What a port says of its source.

use shards::model::IdHasher;

use super::*;

#[test]
fn a_pause_of_ours_is_not_the_sources_silence() {
    let s = Duration::from_secs;
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    let at = |seconds| Moment::ZERO + s(seconds);
    let port = Port::new(
        (SourceId(0), "q".into(), "p".into()),
        Ordering::Strict,
        scope,
        Rc::new(Notify::new()),
        at(0),
    );
    port.set_room(0, at(1));
    assert_eq!((port.look(at(100)).paused, port.look(at(100)).since_poll), (true, s(100)));
    port.set_room(5, at(100));
    assert_eq!((port.look(at(101)).paused, port.look(at(101)).since_poll), (false, s(1)));
    port.set_room(6, at(150));
    assert_eq!(port.look(at(160)).since_poll, s(60), "it may ask since 100 and does not");
    port.set_room(0, at(160));
    port.error.replace(Some("unreachable".into()));
    port.set_room(5, at(170));
    assert_eq!(port.look(at(170)).since_poll, s(70), "trying is not being answered");
}
