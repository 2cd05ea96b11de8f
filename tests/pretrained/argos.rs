//! Packages of Argos Translate, as archives and unpacked.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::support::{directory, fails, folder, program, succeeds, with_model};
use super::translated;

const TEXTS: &str = "I am tired.\nWhere is he?\nThe weather is fine.";
/// As Argos Translate decodes.
const ITS_OPTIONS: [&str; 4] = ["--beam", "4", "--length-penalty", "length^0.2"];

/// The files of a package, and a directory of CTranslate2 with the same model.
fn files(folder: &Path) -> (Vec<(String, Vec<u8>)>, std::path::PathBuf) {
    let out = folder.join("ct2");
    let mut command = with_model("export", &directory("marian-npz"));
    command.args(["--format", "ctranslate2", "--out"]);
    succeeds(command.arg(&out));
    let mut files = vec![("metadata.json".to_owned(), metadata("").into_bytes())];
    for entry in fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        match path.file_name().unwrap().to_str().unwrap() {
            "target.spm" => {}
            "source.spm" => files.push(("sentencepiece.model".to_owned(), bytes)),
            name => files.push((format!("model/{name}"), bytes)),
        }
    }
    (files, out)
}

fn metadata(prefix: &str) -> String {
    format!(r#"{{"from_code": "en", "to_code": "fr", "target_prefix": "{prefix}"}}"#)
}

fn write(files: &[(String, Vec<u8>)], package: &Path) {
    for (name, bytes) in files {
        let path = package.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn pack(files: &[(String, Vec<u8>)], archive: &Path) {
    let mut zip = ZipWriter::new(File::create(archive).unwrap());
    for (name, bytes) in files {
        let options = SimpleFileOptions::default();
        zip.start_file(format!("translate-en_fr-1_0/{name}"), options)
            .unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn a_package_is_translated_with_as_its_model() {
    let folder = folder();
    let (files, model) = files(folder.path());
    let expected = translated(&model, &ITS_OPTIONS, TEXTS);
    let archive = folder.path().join("en_fr.argosmodel");
    pack(&files, &archive);
    let unpacked = folder.path().join("translate-en_fr-1_0");
    write(&files, &unpacked);
    for package in [archive, unpacked] {
        assert_eq!(translated(&package, &[], TEXTS), expected);
        let out = succeeds(program("info").arg(&package));
        assert!(out.contains("CTranslate2"), "{out}");
        let quantized = folder.path().join("int8");
        let mut command = with_model("quantize", &package);
        succeeds(command.arg("--out").arg(&quantized));
        assert_eq!(translated(&quantized, &[], TEXTS).len(), 3);
        fs::remove_dir_all(quantized).unwrap();
    }
}

#[test]
fn packages_that_cannot_be_read_are_named() {
    let folder = folder();
    let (files, _) = files(folder.path());
    let archive = folder.path().join("en_fr.argosmodel");
    let error = || fails(with_model("translate", &archive).args(["--input", "-"]));
    let without = |name: &str| -> Vec<(String, Vec<u8>)> {
        let kept = files.iter().filter(|(other, _)| other != name);
        kept.cloned().collect()
    };

    pack(&without("model/model.bin"), &archive);
    assert!(
        error().contains("en_fr.argosmodel: not a package of Argos Translate: it has no model")
    );
    let mut bpe = without("sentencepiece.model");
    bpe.push(("bpe.model".to_owned(), Vec::new()));
    pack(&bpe, &archive);
    assert!(error().contains("the package has `bpe.model` instead, which is not supported"));
    let mut prefixed = without("metadata.json");
    prefixed.push(("metadata.json".to_owned(), metadata(">>fra<<").into_bytes()));
    pack(&prefixed, &archive);
    assert!(error().contains("`target_prefix`"), "{}", error());

    pack(&files, &archive);
    let whole = fs::read(&archive).unwrap();
    fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
    assert!(error().contains("en_fr.argosmodel: not a package of Argos Translate: "));
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 100].fill(0x55);
    fs::write(&archive, damaged).unwrap();
    assert!(error().contains("en_fr.argosmodel: "), "{}", error());
}
