//! Makes the interpreter's configuration known to `cfg`: `Py_GIL_DISABLED` and the like.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
