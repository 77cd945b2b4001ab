//! Pictures: drawn as SVG, and written as SVG or PNG.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::error::{CommandError, PictureError, Result};

/// PNG pixels per SVG pixel, for high-resolution screens.
const SCALE: f32 = 2.0;

/// A subset of DejaVu Sans, because servers may have no fonts; its licence is
/// in the same folder.
const FONT: &[u8] = include_bytes!("font/dejavu-sans.ttf");
/// Family name of the font.
const FONT_FAMILY: &str = "DejaVu Sans";

/// File format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// Destination of a picture.
#[derive(Debug, Clone)]
pub struct Picture {
    path: PathBuf,
    format: Format,
}

impl Picture {
    /// Checks that the file can be written. Its extension determines the
    /// format.
    pub fn check(path: &Path) -> Result<Self> {
        let format = match path.extension().and_then(|end| end.to_str()) {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => {
                return Err(PictureError::Format(path.to_owned()).into());
            }
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(PictureError::NoFolder(path.to_owned()).into());
        }
        Ok(Self {
            path: path.to_owned(),
            format,
        })
    }

    /// Writes a drawing.
    pub fn write(&self, svg: &str) -> Result<()> {
        let bytes = match self.format {
            Format::Svg => svg.as_bytes().to_owned(),
            Format::Png => png(svg)?,
        };
        let what = format!("plot: cannot write {}", self.path.display());
        fs::write(&self.path, bytes).map_err(CommandError::io(what))
    }
}

/// Renders a drawing as PNG, with the built-in font, so that it looks the same
/// on every system.
fn png(svg: &str) -> Result<Vec<u8>> {
    let failed = |why: String| CommandError::from(PictureError::Png(why));
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FONT_FAMILY);
    let options = Options {
        font_family: FONT_FAMILY.into(),
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let size = size.ok_or_else(|| failed("it is too large".into()))?;
    let mut pixels =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("it is too large".into()))?;
    resvg::render(
        &tree,
        Transform::from_scale(SCALE, SCALE),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"10\">\
                           <rect width=\"20\" height=\"10\" fill=\"red\"/></svg>";

    #[test]
    fn extension_determines_the_format() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["p.svg", "p.png"] {
            let path = folder.path().join(name);
            Picture::check(&path).unwrap().write(DRAWING).unwrap();
        }
        let png = fs::read(folder.path().join("p.png")).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        // Width and height follow the header of the first chunk.
        assert_eq!(
            (&png[16..20], &png[20..24]),
            (&[0, 0, 0, 40][..], &[0, 0, 0, 20][..])
        );
        let svg = fs::read_to_string(folder.path().join("p.svg")).unwrap();
        assert_eq!(svg, DRAWING);
    }

    #[test]
    fn a_png_has_its_text_on_a_system_without_fonts() {
        let drawing = |text: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"60\" height=\"20\">\
                 <text x=\"2\" y=\"15\" font-family=\"sans-serif\">{text}</text></svg>"
            )
        };
        let blank = png(&drawing("")).unwrap();
        for text in ["M", "50 %", "±", "α"] {
            assert!(png(&drawing(text)).unwrap() != blank, "{text}");
        }
    }

    #[test]
    fn unknown_formats_and_missing_folders_are_refused() {
        for name in ["p.pdf", "p", "/no/such/p.svg"] {
            let error = Picture::check(Path::new(name)).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("allowed: "),
                "{error}"
            );
        }
    }
}
