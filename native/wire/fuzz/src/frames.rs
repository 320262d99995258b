//! HTTP/2 frames: any bytes are frames or refused, within their payloads, and every frame read can be written again.

use wire::h2::frame::{self, Frame, HEAD, Head, MAX_WINDOW};

use super::fingerprint;

/// Frames one after the other, until one is refused or is not all there.
pub fn h2_frames(data: &[u8]) -> u64 {
    let (mut rest, mut outcome) = (data, Vec::new());
    while let Some(head) = Head::read(rest) {
        if head.check(1024).is_err() {
            assert!(head.length > 1024);
            break;
        }
        let Some((payload, behind)) = rest[HEAD..].split_at_checked(head.length) else { break };
        rest = behind;
        match Frame::read(head, payload) {
            Ok(frame) => {
                check(&frame, payload);
                outcome.push(fingerprint(&(std::mem::discriminant(&frame), payload.len().checked_ilog2())));
            }
            Err(violation) => {
                assert!(violation.stream <= MAX_WINDOW);
                outcome.push(fingerprint(&(violation.code, violation.stream == 0)));
                break;
            }
        }
    }
    fingerprint(&outcome)
}

fn check(frame: &Frame, payload: &[u8]) {
    let mut out = Vec::new();
    match frame {
        Frame::Data { data, flow, .. } => {
            assert_eq!(*flow, payload.len());
            assert!(payload.get(data.clone()).is_some());
        }
        Frame::Headers { block, stream, end_stream, .. } => {
            let content = &payload[block.clone()];
            frame::put_headers(&mut out, *stream, content, *end_stream, content.len().max(1));
        }
        Frame::PriorityUpdate { stream, value } => assert!(*stream > 0 && payload.get(value.clone()).is_some()),
        Frame::Settings => {
            let settings: Vec<_> = frame::settings(payload).collect();
            assert_eq!(settings.len() * 6, payload.len());
            frame::put_settings(&mut out, &settings);
        }
        Frame::WindowUpdate { stream, increment } => {
            assert!((1..=MAX_WINDOW).contains(increment));
            frame::put_window_update(&mut out, *stream, *increment);
        }
        Frame::Ping(data) => frame::put_ping(&mut out, *data, false),
        Frame::PingAck(data) => frame::put_ping(&mut out, *data, true),
        Frame::SettingsAck => frame::put_settings_ack(&mut out),
        Frame::Continuation { .. } | Frame::Reset { .. } | Frame::GoAway { .. } | Frame::Ignored => {}
    }
    if let Some(head) = Head::read(&out) {
        let again = Frame::read(head, &out[HEAD..]).unwrap();
        match (frame, &again) {
            (Frame::Headers { block, stream, end_stream, .. }, Frame::Headers { block: found, .. }) => {
                assert_eq!(out[HEAD..][found.clone()], payload[block.clone()]);
                let whole = Frame::Headers {
                    stream: *stream,
                    block: found.clone(),
                    end_stream: *end_stream,
                    end_headers: true,
                    awaits_itself: false,
                };
                assert_eq!(again, whole);
            }
            _ => assert_eq!(again, *frame),
        }
    }
}
