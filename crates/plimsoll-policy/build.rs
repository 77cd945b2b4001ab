//! Makes the binding of the policy core, and compiles bindgen's wrappers around its `static
//! inline` functions.

use std::error::Error;
use std::path::PathBuf;

use bindgen::callbacks::{IntKind, ParseCallbacks};

const CORE: &str = "../../policy/include";
/// Includes all headers. A relative path, because it is copied into the wrappers.
const HEADER: &str = "src/ffi/core.h";

/// The types of macros, which bindgen cannot derive from the headers.
#[derive(Debug)]
struct Hints;

impl ParseCallbacks for Hints {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let wide = name.ends_with("_NS")
            || name.starts_with("PLIM_NSEC_PER_")
            || ["PLIM_PPM", "PLIM_PERMILLE", "PLIM_UNLIMITED"].contains(&name);
        if wide {
            Some(IntKind::U64)
        } else if name.starts_with("PLIM_NICE_") {
            Some(IntKind::I32)
        } else {
            None
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", HEADER, CORE] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let wrappers = out.join("wrappers.c");
    bindgen::Builder::default()
        .header(HEADER)
        .clang_args(["-I", CORE, "-std=gnu11"])
        .allowlist_item("(plim|PLIM)_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        // Rustdoc would take indented comments for tests.
        .generate_comments(false)
        .parse_callbacks(Box::new(Hints))
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()?
        .write_to_file(out.join("bindings.rs"))?;
    cc::Build::new()
        .file(&wrappers)
        .include(".")
        .include(CORE)
        .std("gnu11")
        // Optimised in development builds too, because the simulator calls the
        // core millions of times per second.
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .try_compile("plimsoll_policy_core")?;
    Ok(())
}
