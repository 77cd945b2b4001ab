//! Writes the man pages into a folder, for `make install`.

use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("name the folder")?;
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(plimsoll::command_line(), folder)?;
    Ok(())
}
