"""The audit events that a build of CPython can raise, read out of its files.

In the standard library's source they are the texts that `sys.audit` is called with. In native code
they are those that are loaded as an argument right before a call of the function that raises
events: the exported ones by name, and any other one that is called with names of events we know.
"""

import ast
import re
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

from capstone import CS_ARCH_X86, CS_MODE_64, Cs
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

EXPORTED = ("PySys_Audit", "PySys_AuditTuple")
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*(/[a-z0-9]+)?\Z")
# The distance of an argument's loading from its call, in instructions.
REACH = 60


def in_source(directory):
    """The events that modules below a directory raise by `sys.audit`."""
    names = set()
    for path in Path(directory).rglob("*.py"):
        if {"test", "tests", "site-packages", "idlelib", "lib2to3"} & set(path.parts):
            continue
        text = path.read_bytes()
        if b"audit(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            name = node.args[0]
            if called == "audit" and isinstance(name, ast.Constant) and isinstance(name.value, str):
                names.add(name.value)
    return names


class Image:
    """An ELF file, as it lies in memory."""

    def __init__(self, path):
        self.elf = ELFFile(Path(path).open("rb"))
        self.segments = [
            (segment["p_vaddr"], segment.data()) for segment in self.elf.iter_segments("PT_LOAD")
        ]

    def text_at(self, address):
        """The C string at an address, if one that could name an event is there."""
        for start, data in self.segments:
            if start <= address < start + len(data):
                at = address - start
                text = data[at : data.index(b"\0", at)] if b"\0" in data[at : at + 64] else b""
                # The beginning of a string: an address inside another one is another argument.
                return text.decode() if NAME.match(text) else None
        return None

    def symbols(self):
        """Address to name: of functions, and of the slots that addresses are read from."""
        names = {}
        for section in self.elf.iter_sections():
            if section["sh_type"] in ("SHT_DYNSYM", "SHT_SYMTAB"):
                for symbol in section.iter_symbols():
                    if symbol["st_value"]:
                        names[symbol["st_value"]] = symbol.name
            if isinstance(section, RelocationSection):
                table = self.elf.get_section(section["sh_link"])
                for relocation in section.iter_relocations():
                    if relocation["r_info_sym"]:
                        name = table.get_symbol(relocation["r_info_sym"]).name
                        names[relocation["r_offset"]] = name
        return names

    def calls(self):
        """The callees, and the texts they are called with: `{(target, register): {text, ...}}`."""
        decoder = Cs(CS_ARCH_X86, CS_MODE_64)
        decoder.skipdata = True
        names = self.symbols()
        stubs, found = {}, defaultdict(set)
        for section in self.elf.iter_sections():
            if not section["sh_flags"] & 4 or section["sh_type"] != "SHT_PROGBITS":
                continue
            loaded = {}
            start = section["sh_addr"]
            for number, (address, size, operation, operands) in enumerate(
                decoder.disasm_lite(section.data(), start)
            ):
                if operation in ("lea", "mov"):
                    register, _, source = operands.partition(", ")
                    if register in ("rdi", "rsi", "edi", "esi"):
                        target = self.address(source, address + size)
                        text = self.text_at(target) if target else None
                        key = "first" if register[-2:] == "di" else "second"
                        loaded.pop(key, None)
                        if text:
                            loaded[key] = (text, number)
                elif operation in ("call", "jmp", "bnd jmp"):
                    target = self.address(operands, address + size)
                    if operation != "call" and section.name.startswith(".plt"):
                        stubs[address] = names.get(target)
                    if target and (operation == "call" or target in names):
                        for key, (text, when) in loaded.items():
                            if number - when <= REACH:
                                found[target, key].add(text)
                    if operation == "call":
                        loaded = {}
        return found, names, stubs

    @staticmethod
    def address(operand, after):
        """The address that an operand means, where it is a constant one."""
        match = re.search(r"\[rip ([+-]) (0x[0-9a-f]+|\d+)\]", operand)
        if match:
            offset = int(match[2], 0)
            return after + (offset if match[1] == "+" else -offset)
        return int(operand, 16) if re.fullmatch(r"0x[0-9a-f]{4,}", operand) else None


def in_native(path, known):
    """The events that a native library or program raises."""
    found, names, stubs = Image(path).calls()
    exported = set()
    for target, name in names.items():
        if name in EXPORTED:
            exported.add(target)
    # A stub jumps by way of a slot, after at most one other instruction.
    for address, name in stubs.items():
        if name in EXPORTED:
            exported |= {address, address - 4}
    events = set()
    for (target, key), texts in found.items():
        is_exported = target in exported and key == "first"
        familiar = [text for text in texts & known if "." in text]
        if is_exported or (len(familiar) >= 3 and len(familiar) > len(texts) / 2):
            events |= texts
    return events


def of_this_python(known):
    """All events that this Python's own files raise."""
    names = in_source(sysconfig.get_path("stdlib"))
    libraries = sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"))
    with open("/proc/self/maps") as maps:
        shared = {line.split()[-1] for line in maps if "/libpython" in line}
    for path in [*libraries, *(shared or {Path(sys.executable).resolve()})]:
        names |= in_native(path, known)
    return names
