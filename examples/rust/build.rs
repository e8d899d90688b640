// build.rs: compiles the model and its Rust module, and links the program with them.
use std::{env, fs, process::Command};

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let words = ["build", "../net.onnx", "--loss", "cross_entropy(logits, labels)", "--batch", "16", "--xi", "0.02"];
    let done = Command::new("amosc")
        .args(words)
        .args(["--bindings", "rust", "--quiet", "-o", &format!("{out}/net.a"), "--depfile", &format!("{out}/net.d")])
        .status()
        .expect("amosc");
    assert!(done.success(), "amosc: {done}");
    for line in fs::read_to_string(format!("{out}/net.d")).unwrap().lines().skip(1) {
        println!("cargo:rerun-if-changed={}", line.trim().trim_end_matches(" \\").replace("\\ ", " "));
    }
    println!("cargo:rustc-link-arg={out}/net.a");
    println!("cargo:rustc-link-arg=-lm");
}
