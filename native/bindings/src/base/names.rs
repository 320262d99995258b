//! The Python objects every request needs, looked up once: interned names, constants, pre-made header names.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use wire::headers::Name;
use wire::method::Method;

macro_rules! names {
    ($($field:ident $text:literal)*) => {
        /// Interned strings, and objects made of them.
        pub(crate) struct Names {
            $(pub(crate) $field: Py<PyString>,)*
            /// Field names as bytes, indexed by `wire::headers::Name`.
            pub(crate) fields: Vec<Py<PyBytes>>,
            /// Methods as str, indexed by `wire::method::Method`.
            pub(crate) methods: Vec<Py<PyString>>,
            /// `{"type": "http.request", "body": b"", "more_body": False}`
            pub(crate) empty_request: Py<PyDict>,
            /// `{"type": "http.disconnect"}`
            pub(crate) disconnect: Py<PyDict>,
            pub(crate) empty_bytes: Py<PyBytes>,
        }

        impl Names {
            pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
                let empty_bytes = PyBytes::new(py, b"");
                // Interned throughout, as the literals of applications are: equal ones are then the same.
                let empty_request = PyDict::new(py);
                empty_request.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
                empty_request.set_item(intern!(py, "body"), &empty_bytes)?;
                empty_request.set_item(intern!(py, "more_body"), false)?;
                let disconnect = PyDict::new(py);
                disconnect.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
                Ok(Self {
                    fields: Name::ALL.iter().map(|name| PyBytes::new(py, name.as_str().as_bytes()).unbind()).collect(),
                    methods: Method::ALL.iter().map(|method| PyString::intern(py, method.as_str()).unbind()).collect(),
                    empty_request: empty_request.unbind(),
                    disconnect: disconnect.unbind(),
                    empty_bytes: empty_bytes.unbind(),
                    $($field: PyString::intern(py, $text).unbind(),)*
                })
            }
        }
    };
}

names! {
    r#type "type"
    asgi "asgi"
    http_version "http_version"
    server "server"
    client "client"
    scheme "scheme"
    method "method"
    root_path "root_path"
    path "path"
    raw_path "raw_path"
    query_string "query_string"
    headers "headers"
    state "state"
    request_id "request_id"
    traceparent "traceparent"
    tracestate "tracestate"
    respond "respond"
    send "send"
    fail "fail"
    end "end"
    body "body"
    more_body "more_body"
    trailers "trailers"
    extensions "extensions"
    status "status"
    bytes "bytes"
    text "text"
    code "code"
    reason "reason"
    info "info"
    http_1_0 "1.0"
    http_1_1 "1.1"
    http_2 "2"
    http_3 "3"
    http "http"
    https "https"
    write "write"
    close "close"
    abort "abort"
    is_closing "is_closing"
    get_extra_info "get_extra_info"
    write_eof "write_eof"
    can_write_eof "can_write_eof"
    pause_reading "pause_reading"
    resume_reading "resume_reading"
    set_protocol "set_protocol"
    connection_made "connection_made"
    data_received "data_received"
    create_future "create_future"
    create_task "create_task"
    get_task_factory "get_task_factory"
    get_debug "get_debug"
    call_later "call_later"
    call_soon "call_soon"
    cancel "cancel"
    done "done"
    set_result "set_result"
    add "add"
    discard "discard"
    run "run"
    throw "throw"
    dunder_await "__await__"
    default_head "default_head"
    warning "warning"
    error "error"
    record "record"
    handlers "handlers"
    filters "filters"
    formatter "formatter"
    propagate "propagate"
    disabled "disabled"
    level "level"
    use_colors "use_colors"
    log_record_factory "_logRecordFactory"
    is_enabled_for "isEnabledFor"
    context "context"
}
