# frozen_string_literal: true

# Leaks instruction sequences: each text is compiled anew, and the compiled method stays for ever.
module Reports
  COMPILED = {}

  def self.render(title)
    method = COMPILED[title] ||= compile("render_#{COMPILED.size}", title)
    public_send(method)
  end

  def self.compile(name, title)
    lines = Array.new(100) { |i| "  out << 'line #{i} of ' << #{title.dump} << 10.chr\n" }
    module_eval("def self.#{name}\n  out = +''\n#{lines.join}  out\nend", "report.template", 1)
    name
  end
end
