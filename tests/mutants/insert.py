"""Inserts mutants into Rust files: all at once, each behind a switch, so that one build serves all of them.

A mutant is a comparison with another bound, a negation, a condition that is always true or false, a conjunction without
one side, another arithmetic operator, an omitted statement, or a function that returns at once. Constants and the
arguments of macros have none.
"""

import re

import tree_sitter
import tree_sitter_rust

COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
CALCULATIONS = {"+": ("add", "-"), "-": ("sub", "+"), "*": ("mul", "+"), "/": ("div", "*")}
# Not mutated: constants cannot be switched at run time.
SKIPPED = {
    "array_type", "attribute_item", "const_block", "const_item", "enum_item", "macro_definition", "macro_invocation",
    "range_pattern", "static_item", "struct_item", "type_arguments", "use_declaration",
}
OMITTED = {
    "assignment_expression", "await_expression", "call_expression", "compound_assignment_expr", "try_expression",
}
# What a function of this return type returns at once.
RETURNED = [
    (r"\(\)", ["()"]),
    (r"bool", ["true", "false"]),
    (r"Option<.*", ["None"]),
    (r"[iu](16|32|64)|usize", ["0", "1"]),
    (r"Duration", ["std::time::Duration::ZERO", "std::time::Duration::from_secs(3600)"]),
    (r"Result<\(\)(, \w+)?>", ["Ok(())"]),
    (r"Result<bool>", ["Ok(true)", "Ok(false)"]),
    (r"Result<Option<.*", ["Ok(None)"]),
    (r"Result<Vec<.*", ["Ok(Vec::new())"]),
    (r"Vec<.*", ["Vec::new()"]),
    (r"String", ["String::new()"]),
]
# The order of texts that are inserted at the same place.
END, BODY, START, OPERATOR = range(4)


class Source:
    """A file in which mutants are inserted. Its mutants are appended to a list, whose indexes are their numbers."""

    def __init__(self, path, code, mutants, excluded):
        self.path, self.code, self.mutants, self.excluded = path, code, mutants, excluded
        self.edits = []
        # The name of the function that is visited, and its first and last line.
        self.function, self.function_lines = "", (0, 0)

    def insert(self):
        """Returns the code with its mutants."""
        language = tree_sitter.Language(tree_sitter_rust.language())
        self.visit(tree_sitter.Parser(language).parse(self.code).root_node)
        result, position = [], 0
        for start, _, _, _, end, text in sorted(self.edits):
            result += [self.code[position:start], text.encode()]
            position = end
        return b"".join([*result, self.code[position:]])

    def add(self, node, kind, description):
        """Returns the number of a new mutant, or None if it is excluded because it does not compile."""
        line = node.start_point[0] + 1
        key = f"{self.path}:{line}:{node.start_point[1] + 1}: {kind}"
        if key in self.excluded:
            return None
        name = f"{self.path} {self.function}: {description}"
        self.mutants.append(
            {"key": key, "name": name, "path": self.path, "line": line, "function_lines": self.function_lines}
        )
        return len(self.mutants) - 1

    def edit(self, start, order, rank, text, end=None):
        number = len(self.edits)
        self.edits.append((start, order, rank, -number if order == END else number, end or start, text))

    def wrap(self, node, before, after):
        """Of several starts at one place, the outer one comes first; of several ends, the inner one."""
        self.edit(node.start_byte, START, -node.end_byte, before)
        self.edit(node.end_byte, END, -node.start_byte, after)

    def visit(self, node):
        match node.type:
            case kind if kind in SKIPPED:
                return
            case "mod_item" if has_attribute(node, "cfg(test)"):
                return
            case "function_item":
                if has_attribute(node, "test") or "const" in modifiers(node):
                    return
                outer = self.function, self.function_lines
                self.function = text(node.child_by_field_name("name"))
                self.function_lines = node.start_point[0] + 1, node.end_point[0] + 1
                self.visit_function(node)
                self.visit_children(node)
                self.function, self.function_lines = outer
                return
            case "binary_expression":
                self.visit_binary(node)
            case "if_expression" | "match_pattern":
                self.visit_condition(node.child_by_field_name("condition"))
            case "expression_statement":
                self.visit_statement(node)
            case "let_condition":
                self.visit(node.child_by_field_name("value"))
                return
        self.visit_children(node)

    def visit_children(self, node):
        for child in node.children:
            self.visit(child)

    def visit_function(self, node):
        body, result = node.child_by_field_name("body"), node.child_by_field_name("return_type")
        if body is None:
            return
        result = "()" if result is None else re.sub(r"\s+", " ", text(result))
        values = next((values for pattern, values in RETURNED if re.fullmatch(pattern, result)), [])
        for value in values:
            mutant = self.add(node, f"returns {value}", f"returns {value}")
            if mutant is not None:
                code = f" if mutant_switch::on({mutant}) {{ return {value}; }}"
                self.edit(body.start_byte + 1, BODY, 0, code)

    def visit_condition(self, node):
        if node is None or node.type in ("block", "let_chain", "let_condition"):
            return
        if node.type == "binary_expression" and operator(node) not in CALCULATIONS:
            return
        for value, before, after in [("true", "(mutant_switch::on({}) || (", "))"), ("false", "(!mutant_switch::on({}) && (", "))")]:
            mutant = self.add(node, value, f"`{short(node)}` is {value}")
            if mutant is not None:
                self.wrap(node, before.format(mutant), after)

    def visit_binary(self, node):
        symbol, token = operator(node), node.child_by_field_name("operator")
        sides = [node.child_by_field_name(side) for side in ("left", "right")]
        if symbol in ("&&", "||"):
            if any(side.type in ("let_chain", "let_condition") for side in sides):
                return
            switch = "mutant_switch::on({}) ||" if symbol == "&&" else "!mutant_switch::on({}) &&"
            for side in sides:
                mutant = self.add(side, f"without {symbol}", f"`{short(node)}` without `{short(side)}`")
                if mutant is not None:
                    self.wrap(side, f"({switch.format(mutant)} (", "))")
        elif symbol in ("==", "!="):
            mutant = self.add(node, symbol, f"`{short(node)}` negated")
            if mutant is not None:
                self.wrap(node, f"(mutant_switch::on({mutant}) ^ (", "))")
        elif symbol in COMPARISONS:
            bound = self.add(node, f"{symbol} bound", f"`{short(node)}` with another bound")
            negation = self.add(node, f"{symbol} negated", f"`{short(node)}` negated")
            if bound is not None and negation is not None:
                self.wrap(node, f"mutant_switch::{COMPARISONS[symbol]}({bound}, {negation}, &(", "))")
                self.edit(token.start_byte, OPERATOR, 0, "), &(", token.end_byte)
        elif symbol in CALCULATIONS:
            function, other = CALCULATIONS[symbol]
            mutant = self.add(node, symbol, f"`{short(node)}` with `{other}`")
            if mutant is not None:
                self.wrap(node, f"mutant_switch::{function}({mutant}, ", ")")
                self.edit(token.start_byte, OPERATOR, 0, ", ", token.end_byte)

    def visit_statement(self, node):
        expression = next(iter(node.named_children), None)
        # A dropped value may be borrowed by what follows.
        if expression is None or expression.type not in OMITTED or text(node).startswith("drop("):
            return
        if text(node).endswith(";"):
            mutant = self.add(node, "omitted", f"without `{short(expression)}`")
            if mutant is not None:
                self.wrap(node, f"if !mutant_switch::on({mutant}) {{ ", " }")


def text(node):
    return node.text.decode()


def short(node):
    """Returns the beginning of the code, on one line."""
    code = re.sub(r"\s+", " ", text(node))
    return code if len(code) <= 80 else code[:80] + "…"


def operator(node):
    return text(node.child_by_field_name("operator"))


def modifiers(node):
    found = [child for child in node.children if child.type == "function_modifiers"]
    return text(found[0]).split() if found else []


def has_attribute(node, name):
    before = node.prev_named_sibling
    while before is not None and before.type in ("attribute_item", "line_comment"):
        if before.type == "attribute_item" and name in text(before):
            return True
        before = before.prev_named_sibling
    return False
