"""Characters at random are told from what people and programs write."""

# ruff: noqa: RUF001 - real words in real scripts

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pytest

from armload.analysis.sanity import (
    NOISE_SHARE,
    WINDOW_CHARACTERS,
    TextFault,
    doubts_about_text,
    is_noise,
    odd_share,
)
from tests.unit.runs import TEXT

ROOT = Path(__file__).parents[2]

LANGUAGES = {
    "English": "The river was low that summer, and the children walked across it to school. Nobody "
    "asked how they came home with wet shoes; in October, when the rain began, it was closed.",
    "German": "Im Herbst fährt die Fähre nur zweimal am Tag. Wer den Großmarkt in Überlingen vor "
    "acht Uhr erreichen will, übernachtet am besten bei Frau Schäfer, die ein Zimmer vermietet.",
    "French": "Les élèves n'étaient pas encore arrivés quand le maître ouvrit les fenêtres. « Où "
    "sont-ils ? » demanda-t-il ; personne ne répondit, car c'était l'été et l'école était fermée.",
    "Spanish": "¿Cuántos años tiene el puente? Según el señor Muñoz, más de trescientos; pero su "
    "hermana, que también nació aquí, dice que lo construyeron después de la última inundación.",
    "Turkish": "Köyün çeşmesi iki yüz yıldır akıyor. İçinden geçen yol geçen yıl genişletildi; "
    "şimdi büyük otobüsler de geçebiliyor, ama yaşlılar gürültüden şikâyet ediyorlar.",
    "Russian": "Утром поезд опоздал на сорок минут, и пассажиры пили чай на станции. Никто не "
    "сердился: снег лежал на крышах, собака спала у печки, а начальник станции читал газету.",
    "Greek": "Το καράβι φεύγει στις έξι το πρωί και γυρίζει το βράδυ. Όταν φυσάει δυνατά, μένουμε "
    "στο λιμάνι και παίζουμε τάβλι στο καφενείο του Γιάννη, που δεν κλείνει ποτέ.",
    "Arabic": "كان الجسر القديم مغلقا طوال الشتاء، فسار الأطفال إلى المدرسة عبر السوق. وفي الربيع "
    "عاد الناس إلى الحدائق، وجلس الجيران تحت الأشجار يشربون الشاي ويتحدثون عن المطر والحصاد.",
    "Hindi": "गाँव की पुरानी नदी इस साल सूख गई है। बच्चे अब पुल के बिना ही स्कूल जाते हैं, और शाम को "
    "सब लोग पेड़ के नीचे बैठकर चाय पीते हैं। बारिश आने में अभी दो महीने बाकी हैं।",
    "Chinese": ""
    "今年夏天河水很浅，孩子们走过河去上学。没有人问他们为什么鞋子湿了；到了十月，雨季"
    "开始的时候，新桥已经通车了。村里的老人说，旧桥有三百多年的历史，是他们的祖先用石"
    "头一块一块建起来的。每到春天，桥边的桃花开了，许多人从城里来拍照。晚上大家坐在院"
    "子里喝茶，谈论天气和收成。",
    "Japanese": ""
    "今年の夏は川の水が少なく、子どもたちは歩いて川を渡り、学校へ行きました。10月に"
    "なって雨が降り始めると、新しい橋が開通しました。村のお年寄りによれば、古い橋は3"
    "00年以上前に作られたそうです。春になると橋のそばで桜が咲き、町から多くの人がカ"
    "メラを持ってやって来ます。夜はみんなで庭に座ってお茶を飲みます。",
}

POEM = """The lamp is out, the kettle cold,
  the cat has claimed the chair;
the year that was so new is old --
  there's frost upon the stair.

"Who knocks?" -- The wind! "Who calls?" -- The sea!
  It's nobody I know.
Put on your coat and walk with me
  through seven miles of snow...
"""

DATA = {
    "JSON": json.dumps(
        [{"id": n, "name": f"user{n}", "tags": ["a", "b"], "ok": n % 2 == 0} for n in range(12)],
        separators=(",", ":"),
    ),
    "arithmetic": "\n".join(f"{n}*{n + 7}-{n * 3}/3={n * (n + 7) - n}" for n in range(3, 60)),
    "digits and signs": "".join(
        random.Random(1).choice(string.digits) + random.Random(n).choice("+-*/=<>")
        for n in range(200)
    ),
    "chess": "1.e4 e5 2.Nf3 Nc6 3.Bb5 a6 4.Ba4 Nf6 5.O-O Be7 6.Re1 b5 7.Bb3 d6 8.c3 O-O 9.h3 Nb8 "
    "10.d4 Nbd7 11.Nbd2 Bb7 12.Bc2 Re8 13.Nf1 Bf8 14.Ng3 g6 15.Bg5 h6 16.Bd2 exd4 17.cxd4 c5",
    "hashes": "\n".join(f"{random.Random(n).getrandbits(256):064x}  file{n}" for n in range(9)),
    "emoji": "".join(chr(0x1F600 + n) for n in range(64)) * 4,
    "words at random": TEXT * 2,
    "languages": "\n".join(f"{name}: {text[:20]}" for name, text in LANGUAGES.items()),
    "poem": POEM,
}


@pytest.mark.parametrize("name", [*LANGUAGES, *DATA])
def test_what_people_and_programs_write_is_no_noise(name: str) -> None:
    text = {**LANGUAGES, **DATA}[name]
    assert len(text) >= WINDOW_CHARACTERS, "no judgement is made of this"
    for start in range(len(text) - WINDOW_CHARACTERS + 1):
        assert not is_noise(text[start : start + WINDOW_CHARACTERS])


def test_no_window_of_this_projects_files_is_noise() -> None:
    files = [
        path
        for pattern in ("armload/**/*.py", "toolchains/native/**/*.[ch]*", "docs/*.md", "*.toml")
        for path in sorted(ROOT.glob(pattern))
    ]
    assert len(files) > 300
    for path in files[::5]:
        text = path.read_text()
        for start in range(0, len(text) - WINDOW_CHARACTERS, 1009):
            assert not is_noise(text[start : start + WINDOW_CHARACTERS]), path


ALPHABETS = {
    "printable ASCII": "".join(map(chr, range(0x20, 0x7F))),
    "printable Unicode": "".join(filter(str.isprintable, map(chr, range(0x21, 0x3000)))),
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize(("length", "found"), [(128, 186), (256, 194), (1024, 200)])
def test_characters_at_random_are_found(alphabet: str, length: int, found: int) -> None:
    chance = random.Random(length)
    texts = ["".join(chance.choices(ALPHABETS[alphabet], k=length)) for _ in range(200)]
    assert sum(map(is_noise, texts)) >= found
    assert not any(is_noise(text[: WINDOW_CHARACTERS - 1]) for text in texts)


def _letters(*ranges: range) -> str:
    return "".join(each for span in ranges for each in map(chr, span) if each.isalpha())


ACCENTED = _letters(range(0xC0, 0x180))
LATIN = {
    "accented": (ACCENTED, 0, 0),
    "accented in words": (ACCENTED + " " * 40, 0, 0),
    "all Latin letters": (_letters(range(0x41, 0x7B), range(0xC0, 0x250)), 0, 0),
    "Latin-1": ("".join(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0x100)])), 970, 1000),
}


@pytest.mark.parametrize("name", LATIN)
@pytest.mark.parametrize("length", [128, 256, 1024])
def test_letters_of_one_script_at_random_are_missed_as_documented(name: str, length: int) -> None:
    alphabet, least, most = LATIN[name]
    chance = random.Random(length)
    texts = ("".join(chance.choices(alphabet, k=length)) for _ in range(1000))
    assert least <= sum(map(is_noise, texts)) <= most


def test_noise_is_a_finding_beside_the_others() -> None:
    chance = random.Random(3)
    text = "".join(chance.choices(ALPHABETS["printable ASCII"], k=300))
    assert odd_share(text) > NOISE_SHARE
    assert doubts_about_text(text) == [TextFault(kind="noise")]
    assert doubts_about_text(f"{LANGUAGES['English']}\n{POEM}") == []
