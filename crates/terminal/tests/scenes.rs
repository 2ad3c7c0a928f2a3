//! What the screen looks like, scene by scene: `scenes/*.txt`, compared exactly. `UPDATE_SCENES=1` writes them.
//!
//! Below each picture stands how each cell looks: a letter for its colour (a capital when it is bold), `:` dim, `*` bold,
//! `/` italic, `_` underlined, `#` reversed, `-` struck out.

mod table;

use flint_terminal::{Screen, draw};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::{Rect, Size};
use ratatui_core::style::{Color, Modifier};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use unicode_width::UnicodeWidthStr;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenes")
}

#[test]
fn scenes_look_as_they_did() {
    let update = std::env::var_os("UPDATE_SCENES").is_some();
    let mut wrong = Vec::new();
    for scene in table::scenes() {
        let file = folder().join(scene.name).with_extension("txt");
        let picture = picture(scene.screen, scene.width, scene.height);
        if update {
            fs::create_dir_all(folder()).and_then(|()| fs::write(&file, &picture)).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if expected != picture {
            wrong.push(format!("{}: it was\n{expected}\nand is\n{picture}", scene.name));
        }
    }
    assert!(wrong.is_empty(), "UPDATE_SCENES=1 writes them\n{}", wrong.join("\n"));
}

#[test]
fn every_picture_is_of_a_scene() {
    let names: BTreeSet<String> = table::scenes().iter().map(|scene| scene.name.to_owned()).collect();
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(files, names);
}

fn picture(mut screen: Screen, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    screen.lay_out(Size { width, height });
    let cursor = draw(&screen, &mut buffer);
    let mut out = rows(&buffer, |cell| cell.symbol().to_owned());
    out += &cursor.map(|at| format!("cursor at {}, {}\n", at.x, at.y)).unwrap_or_default();
    out + &rows(&buffer, |cell| look(cell).to_string())
}

fn rows(buffer: &Buffer, sign: impl Fn(&Cell) -> String) -> String {
    let width = usize::from(buffer.area.width);
    let mut out = String::new();
    for row in buffer.content.chunks(width) {
        let mut line = String::new();
        let mut at = 0;
        while let Some(cell) = row.get(at) {
            line += &sign(cell);
            at += cell.symbol().width().max(1); // a wide sign covers the next cell
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn look(cell: &Cell) -> char {
    let has = |modifier| cell.modifier.contains(modifier);
    let letter = match cell.fg {
        Color::Red => 'r',
        Color::Green => 'g',
        Color::Yellow => 'y',
        Color::Blue => 'b',
        Color::Magenta => 'm',
        Color::Cyan => 'c',
        _ if has(Modifier::REVERSED) => '#',
        _ if has(Modifier::CROSSED_OUT) => '-',
        _ if has(Modifier::UNDERLINED) => '_',
        _ if has(Modifier::ITALIC) => '/',
        _ if has(Modifier::DIM) => ':',
        _ if has(Modifier::BOLD) => '*',
        _ => ' ',
    };
    if has(Modifier::BOLD) { letter.to_ascii_uppercase() } else { letter }
}
