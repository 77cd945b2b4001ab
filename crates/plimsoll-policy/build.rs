//! Compiles the policy core: the checked-in C wrappers around its `static
//! inline` functions.

use std::path::Path;

fn main() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let headers = manifest.join("../../policy/include");

    for path in [&headers, &manifest.join("src/ffi")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    // While the wrappers are being regenerated, they may not match the headers.
    println!("cargo::rerun-if-env-changed=PLIMSOLL_BLESS");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        return;
    }
    cc::Build::new()
        .file(manifest.join("src/ffi/wrappers.c"))
        .include(manifest)
        .include(&headers)
        .std("gnu11")
        // Optimised in development builds too, because the simulator calls the
        // core millions of times per second.
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile("plimsoll_policy_core");
}
