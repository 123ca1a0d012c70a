// See Ptx.h.

#include "Ptx.h"

#include <cctype>
#include <cstring>
#include <map>
#include <sstream>

using namespace emulator;

namespace {

class Parser {
public:
  Parser(const std::string &text, const std::string &entry) : entry(entry) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      program->lines.push_back(line);
  }

  std::unique_ptr<Program> run() {
    for (number = 0; number < program->lines.size(); ++number) {
      std::string line = program->lines[number];
      line = line.substr(0, line.find("//"));
      try {
        parseLine(trim(line));
      } catch (const PtxError &error) {
        throw PtxError("line " + std::to_string(number + 1) + ": '" + line +
                       "': " + error.what());
      }
    }
    if (!hasEntry)
      throw PtxError("there is no entry '" + entry + "'");
    // Labels are known at the end only.
    for (auto &[index, label] : branches)
      program->instructions[index].target = find(labels, label);
    for (auto &[index, table] : tables)
      for (const std::string &label : find(branchTargets, table))
        program->instructions[index].targets.push_back(find(labels, label));
    program->instructions.emplace_back().control = Control::Exit;
    return std::move(program);
  }

private:
  static std::string trim(const std::string &text) {
    size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos)
      return "";
    return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
  }
  static bool startsWith(const std::string &text, const char *prefix) {
    return text.rfind(prefix, 0) == 0;
  }
  template <typename Value>
  static const Value &find(const std::map<std::string, Value> &map,
                           const std::string &name) {
    auto found = map.find(name);
    if (found == map.end())
      throw PtxError("'" + name + "' is not defined");
    return found->second;
  }
  /// Comma-separated, but not within braces.
  static std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts{""};
    int depth = 0;
    for (char c : text) {
      depth += (c == '{') - (c == '}');
      if (c == ',' && depth == 0)
        parts.emplace_back();
      else
        parts.back() += c;
    }
    for (std::string &part : parts)
      part = trim(part);
    if (parts.size() == 1 && parts[0].empty())
      parts.clear();
    return parts;
  }

  void parseLine(std::string line) {
    while (startsWith(line, "{") || startsWith(line, "}"))
      line = trim(line.substr(1));
    if (line.empty() || line == ")" || line == "(")
      return;
    size_t colon = line.find(':');
    if (line[0] == '$' && colon != std::string::npos) {
      std::string label = line.substr(0, colon);
      std::string rest = trim(line.substr(colon + 1));
      if (startsWith(rest, ".branchtargets")) {
        pendingTargets = label;
        targetText = rest.substr(std::strlen(".branchtargets"));
        finishTargets();
        return;
      }
      labels[label] = static_cast<uint32_t>(program->instructions.size());
      return parseLine(rest);
    }
    if (!pendingTargets.empty()) {
      targetText += line;
      finishTargets();
      return;
    }
    if (line[0] == '.')
      return parseDirective(line);
    parseInstruction(line);
  }

  /// A list of labels may go over several lines.
  void finishTargets() {
    if (targetText.find(';') == std::string::npos)
      return;
    targetText.erase(targetText.find(';'));
    branchTargets[pendingTargets] = split(targetText);
    pendingTargets.clear();
  }

  void parseDirective(const std::string &line) {
    std::istringstream stream(line);
    std::string word, argument;
    stream >> word >> argument;
    if (word == ".target")
      program->target = argument;
    else if (word == ".visible" && argument == ".entry")
      hasEntry |= line.find(entry + "(") != std::string::npos;
    else if (word == ".param")
      parameters.push_back(line.substr(line.find_last_of(" \t") + 1));
    else if (word == ".reqntid")
      program->numThreads = static_cast<uint32_t>(std::stoul(argument));
    else if (word == ".minnctapersm")
      program->blocksPerMultiprocessor =
          static_cast<uint32_t>(std::stoul(argument));
    else if (word == ".reg")
      declareRegisters(line);
    else if (word == ".shared")
      declareShared(line);
    else if (word == ".extern" && argument == ".shared")
      dynamicShared = nameOf(line);
    else if (word == ".global")
      declareGlobal(line);
    else if (word != ".version" && word != ".address_size" && word != ".pragma")
      throw PtxError("directive " + word + " is not known");
  }

  /// "name" of ".shared .align 4 .b8 name[8192];" or "… .u32 name;"
  static std::string nameOf(const std::string &line) {
    size_t end = line.find_first_of("[;");
    size_t begin = line.find_last_of(" \t", end) + 1;
    return line.substr(begin, end - begin);
  }
  /// In bytes.
  static size_t sizeOf(const std::string &line) {
    size_t type = line.find_first_of(" \t", line.find(".align") + 7) + 2;
    size_t bytes = std::stoul(line.substr(type + 1)) / 8;
    size_t count = line.find('[');
    return count == std::string::npos
               ? bytes
               : bytes * std::stoul(line.substr(count + 1));
  }
  static size_t alignmentOf(const std::string &line) {
    return std::stoul(line.substr(line.find(".align") + 6));
  }

  /// ".reg .b32 %r<12>;", ".reg .pred own, any;"
  void declareRegisters(const std::string &line) {
    size_t begin = line.find_first_of(" \t", line.find('.', 4)) + 1;
    for (const std::string &part :
         split(line.substr(begin, line.find(';') - begin))) {
      size_t angle = part.find('<');
      if (angle == std::string::npos) {
        registers[part] = program->numRows++;
        continue;
      }
      unsigned count = std::stoul(part.substr(angle + 1));
      for (unsigned index = 0; index < count; ++index)
        registers[part.substr(0, angle) + std::to_string(index)] =
            program->numRows++;
    }
  }

  void declareShared(const std::string &line) {
    size_t alignment = alignmentOf(line);
    uint32_t &end = program->staticShared;
    end = static_cast<uint32_t>((end + alignment - 1) / alignment * alignment);
    symbols[nameOf(line)] = end;
    end += static_cast<uint32_t>(sizeOf(line));
  }

  void declareGlobal(const std::string &line) {
    size_t size = sizeOf(line);
    auto data = std::make_unique<std::byte[]>(size);
    if (size_t brace = line.find('{'); brace != std::string::npos) {
      size_t index = 0;
      for (const std::string &value :
           split(line.substr(brace + 1, line.find('}') - brace - 1)))
        data[index++] = static_cast<std::byte>(std::stoul(value));
    }
    symbols[nameOf(line)] = reinterpret_cast<uint64_t>(data.get());
    program->globalRanges.emplace_back(data.get(), size);
    program->globals.push_back(std::move(data));
  }

  Row constant(uint64_t value) {
    auto [found, isNew] = constants.try_emplace(value, program->numRows);
    if (isNew) {
      program->constants.emplace_back(program->numRows, value);
      ++program->numRows;
    }
    return found->second;
  }

  Row operand(const std::string &text) {
    if (text == "_")
      return kSink;
    if (auto found = registers.find(text); found != registers.end())
      return found->second;
    static const std::map<std::string, Row> specials{{"%tid.x", kThread},
                                                     {"%laneid", kLane},
                                                     {"%ctaid.x", kBlock},
                                                     {"%ntid.x", kNumThreads},
                                                     {"%nctaid.x", kNumBlocks}};
    if (auto found = specials.find(text); found != specials.end())
      return found->second;
    if (text == dynamicShared) // behind what is static, aligned to 16
      return constant((program->staticShared + 15) / 16 * 16);
    if (auto found = symbols.find(text); found != symbols.end())
      return constant(found->second);
    return constant(number64(text));
  }

  static uint64_t number64(std::string text) {
    if (startsWith(text, "0f") || startsWith(text, "0d"))
      return std::stoull(text.substr(2), nullptr, 16);
    bool isNegative = startsWith(text, "-");
    if (isNegative)
      text = text.substr(1);
    size_t end = 0;
    if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])))
      throw PtxError("operand '" + text + "' is not known");
    uint64_t value = std::stoull(text, &end, 0);
    if (text.find_first_not_of('U', end) != std::string::npos)
      throw PtxError("number '" + text + "' is malformed");
    return isNegative ? 0 - value : value;
  }

  void parseInstruction(std::string line) {
    Instruction instruction;
    instruction.line = static_cast<uint32_t>(number);
    if (line.back() != ';')
      throw PtxError("an instruction does not end in its line");
    line.pop_back();
    if (line[0] == '@') {
      size_t end = line.find_first_of(" \t");
      instruction.hasGuard = true;
      instruction.isNegated = line[1] == '!';
      instruction.guard = operand(line.substr(1 + instruction.isNegated,
                                              end - 1 - instruction.isNegated));
      line = trim(line.substr(end));
    }
    size_t end = line.find_first_of(" \t");
    std::string opcode = line.substr(0, end);
    std::vector<std::string> operands;
    if (end != std::string::npos)
      operands = split(line.substr(end));
    auto index = static_cast<uint32_t>(program->instructions.size());
    if (opcode == "bra" || opcode == "bra.uni") {
      instruction.control = Control::Branch;
      branches.emplace_back(index, operands.at(0));
    } else if (opcode == "brx.idx") {
      instruction.control = Control::Table;
      instruction.rows[0] = operand(operands.at(0));
      tables.emplace_back(index, operands.at(1));
    } else if (opcode == "ret") {
      instruction.control = Control::Exit;
    } else if (opcode == "bar.sync") {
      if (operands != std::vector<std::string>{"0"})
        throw PtxError("only barrier 0 of all threads is known");
      instruction.control = Control::BlockBarrier;
    } else if (operands.size() == 2 && operands[1] == "%globaltimer") {
      instruction.execute = findExecute("globaltimer", instruction);
      instruction.rows[0] = operand(operands[0]);
    } else if (startsWith(opcode, "ld.param.")) {
      if (parameters.size() != 1 || operands.at(1) != "[" + parameters[0] + "]")
        throw PtxError("expected one parameter");
      program->parameter = operand(operands.at(0));
      return;
    } else {
      instruction.execute = findExecute(opcode, instruction);
      if (!instruction.execute)
        throw PtxError("instruction " + opcode + " is not known");
      parseOperands(operands, instruction);
    }
    if (instruction.hasGuard && instruction.control != Control::None &&
        instruction.control != Control::Branch)
      throw PtxError(opcode + " with a guard is not known");
    program->instructions.push_back(std::move(instruction));
  }

  void parseOperands(const std::vector<std::string> &operands,
                     Instruction &instruction) {
    size_t next = 0, numAddresses = 0;
    auto add = [&](Row row) {
      if (next == std::size(instruction.rows))
        throw PtxError("too many operands");
      instruction.rows[next++] = row;
    };
    // mov.b32 {a, b}, c and mov.b32 a, {b, c}, and plain ones.
    for (size_t index = 0; index < operands.size(); ++index)
      if (instruction.count == 1 && operands[index][0] == '{')
        instruction.count = index == 0 ? 2 : 3;
    for (const std::string &text : operands) {
      if (text[0] == '{') {
        for (const std::string &part :
             split(text.substr(1, text.find('}') - 1)))
          add(operand(part));
      } else if (text[0] == '[') {
        std::string address = text.substr(1, text.find(']') - 1);
        size_t sign = address.find_first_of("+-", 1);
        add(operand(trim(address.substr(0, sign))));
        if (numAddresses == std::size(instruction.offsets))
          throw PtxError("too many addresses");
        int64_t &offset = instruction.offsets[numAddresses++];
        if (sign != std::string::npos)
          offset = std::stoll(address.substr(sign + (address[sign] == '+')));
      } else {
        // Two results: "a|b".
        size_t bar = text.find('|');
        add(operand(text.substr(0, bar)));
        if (bar != std::string::npos)
          add(operand(text.substr(bar + 1)));
      }
    }
  }

  std::string entry;
  std::unique_ptr<Program> program = std::make_unique<Program>();
  size_t number = 0;
  bool hasEntry = false;
  std::string dynamicShared, pendingTargets, targetText;
  std::vector<std::string> parameters;
  std::map<std::string, Row> registers;
  std::map<std::string, uint64_t> symbols;
  std::map<uint64_t, Row> constants;
  std::map<std::string, uint32_t> labels;
  std::map<std::string, std::vector<std::string>> branchTargets;
  std::vector<std::pair<uint32_t, std::string>> branches, tables;
};

} // namespace

std::unique_ptr<Program> emulator::parsePtx(const std::string &text,
                                            const std::string &name) {
  return Parser(text, name).run();
}
