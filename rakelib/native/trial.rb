# frozen_string_literal: true

require "json"
require_relative "bare_root"
require_relative "binaries"

module Native
  # Installs the gem and tries it with one Ruby in a root that has no compiler. Other files that the specs need
  # (RSpec, which is pure Ruby, and programs that were compiled elsewhere) are mounted.
  class Trial
    INSIDE = "/opt/native/trial"
    GEM_HOME = "#{INSIDE}/home".freeze
    COMMAND = "#{GEM_HOME}/bin/memintro".freeze
    SPECS = %w[spec/integration/native_truth_spec.rb spec/integration/ruby_truth_spec.rb].freeze
    # Number of their examples that must pass; the others need jemalloc, tcmalloc or valgrind, which a bare root does
    # not have.
    PASSED = 14
    # Debian's RSpec, found after this Ruby's own libraries.
    RSPEC = <<~RUBY.freeze
      $LOAD_PATH.push(*Dir["#{INSIDE}/rspec/{rspec,diff-lcs}*/lib"], "#{INSIDE}/vendor_ruby")
      require "rspec/core"
      exit RSpec::Core::Runner.run(ARGV)
    RUBY
    # The line of examples/leak.rb that asks for memory, and the number of blocks that it keeps.
    LEAK = { site: /leak\.rb:12\z/, blocks: 50_000 }.freeze
    MINUTES = 10
    # The advice that a Ruby gets for which the gem was not compiled.
    ADVICE = "`gem install memintro --platform ruby`"

    # @param entry [Matrix::RubyEntry]
    # @param matrix [String] folder of the matrix
    # @param checkout [String] whose specs are run
    # @param rubies [TargetRubies]
    # @param gem [String] path of the gem
    def initialize(entry, matrix:, checkout:, rubies:, gem:)
      @entry = entry
      @folder = File.join(matrix, "native", "trial-#{entry.name}")
      @checkout = checkout
      @rubies = rubies
      @gem = gem
      @root = BareRoot.new(entry, folder: matrix)
    end

    # Prints the result of each step.
    #
    # @raise [Failed, Matrix::Failed]
    def call
      @root.prepare
      lay_out
      say @root.output(@entry.program, "-e", "print RUBY_DESCRIPTION"), "in Debian #{@entry.debian} without a compiler"
      say "gem install --local", install
      say "memintro doctor", doctor
      say "memintro run, examples/leak.rb", demo
      say "pages without a browser", pages
      say "truth tests", truth
      say "Ruby of another version", other_ruby
    end

    private

    def say(what, outcome) = puts("  #{@entry.name}: #{what}: #{outcome}")

    # Prepares a checkout: the specs are copied; the gem's files are linked after the gem is installed.
    def lay_out
      FileUtils.rm_rf(@folder)
      FileUtils.mkdir_p(File.join(@folder, "tree", "crates", "abi"))
      FileUtils.cp(@gem, File.join(@folder, "memintro.gem"))
      %w[spec crates/abi/include].each do |name|
        FileUtils.cp_r(File.join(@checkout, name), File.join(@folder, "tree", name))
      end
    end

    # Folder outside. Old releases of RubyGems leave the "gnu" out of its name.
    def unpacked
      Dir[File.join(@folder, "home", "gems", "memintro-#{Memintro::VERSION}-*")].first ||
        raise(Failed, "gem install unpacked nothing")
    end

    def installed = "#{GEM_HOME}/gems/#{File.basename(unpacked)}"

    def install
      gem = @entry.program.sub("ruby", "gem")
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      run("install", gem, "install", "--local", "--no-document", "#{INSIDE}/memintro.gem")
      seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
      %w[lib exe docs README.md].each { |name| File.symlink("#{installed}/#{name}", File.join(@folder, "tree", name)) }
      files = Dir["#{unpacked}/**/*"].select { |file| File.file?(file) }
      format("%.2f s, %d files, %d bytes", seconds, files.size, files.sum { |file| File.size(file) })
    end

    def doctor
      text = run("doctor", COMMAND, "doctor")
      hook = "#{installed}/lib/memintro/libmemintro_hook.so"
      raise Failed, "the doctor names another hook than #{hook}:\n#{text}" unless text.include?(hook)

      text.lines(chomp: true).last(2).join("; ")
    end

    def demo
      run("demo", COMMAND, "run", "--format", "json", "--report", "#{INSIDE}/leak.json", "--",
          @entry.program, "#{installed}/examples/leak.rb")
      sites = JSON.parse(File.read(File.join(@folder, "leak.json"))).fetch("call_sites")
      found = sites.max_by { |site| site.fetch("live_bytes") }
      blocks = found.fetch("live_blocks")
      unless LEAK[:site].match?(found.fetch("name")) && blocks.between?(LEAK[:blocks], LEAK[:blocks] + 10)
        raise Failed, "the demo's leak is not found: #{found}"
      end

      "#{File.basename(found.fetch('name'))} has #{blocks} live blocks of #{found.fetch('live_bytes')} bytes"
    end

    # Pages of the report, the account and a diff. They load nothing, and name the line that leaks.
    def pages
      run("pages", @entry.program, "-I#{installed}/lib", "-rmemintro", "-e", <<~RUBY)
        Memintro.start(stack_depth: 8)
        before = Memintro.snapshot(:sites)
        load "#{installed}/examples/leak.rb"
        File.open("#{INSIDE}/report.html", "w") { |file| Memintro.report(file, format: :html) }
        File.write("#{INSIDE}/diff.html", (Memintro.snapshot(:sites) - before).to_html)
      RUBY
      run("account", COMMAND, "account", "--format", "html", "-o", "#{INSIDE}/account.html", "--",
          @entry.program, "-e", "")
      sizes = { report: "leak.rb", account: "malloc_native", diff: "leak.rb" }.map do |name, named|
        page = File.read(File.join(@folder, "#{name}.html"))
        raise Failed, "#{name}.html does not name #{named}" unless page.start_with?("<!") && page.include?(named)
        raise Failed, "#{name}.html loads something" if page.match?(/(?:src|href)="?(?:https?:)?\/\//)

        "#{name} #{page.bytesize} bytes"
      end
      sizes.join(", ")
    end

    # Compiled in the root in which the gem was compiled, because this one has no compiler.
    def compile_programs
      script = 'NativePrograms.program("rarely_called.cc"); ' \
               '%i[lazy now no_plt no_pie].each { |variant| NativePrograms.program("truth.cc", variant: variant) }'
      @rubies.root.run!(@rubies.program(@rubies.entries.first), "-r./spec/support/native_programs",
                        "-e", script, env: specs_environment, binds: { @folder => INSIDE }, chdir: "#{INSIDE}/tree")
    end

    def truth
      compile_programs
      run("truth", @entry.program, "-e", RSPEC, "--", "--format", "progress", "--format", "json", "--out",
          "#{INSIDE}/truth.json", "--tag", "~long", *SPECS, chdir: "#{INSIDE}/tree", binds: rspec)
      summary = JSON.parse(File.read(File.join(@folder, "truth.json"))).fetch("summary")
      examples, failures, skipped = summary.values_at("example_count", "failure_count", "pending_count")
      passed = examples - failures - skipped
      raise Failed, "truth tests: #{summary}" if failures.positive? || passed < PASSED

      "#{passed} passed, #{skipped} skipped for other allocators and valgrind"
    end

    def rspec
      from = @rubies.root_of(@entry)
      from.install("ruby-rspec")
      { File.join(from.path, "usr/share/rubygems-integration/all/gems") => "#{INSIDE}/rspec",
        File.join(from.path, "usr/lib/ruby/vendor_ruby") => "#{INSIDE}/vendor_ruby" }
    end

    # Behaves as if the gem had not been compiled for this Ruby.
    def other_ruby
      extension = File.join(unpacked, "lib/memintro", @entry.name)
      FileUtils.mv(extension, File.join(@folder, "taken-away"))
      text = run("other-ruby", @entry.program, "-rmemintro", "-e", "0", fails: true)
      raise Failed, "no word about another Ruby:\n#{text}" unless text.include?(ADVICE)

      "#{text[/This gem was compiled for .*? with glibc/]}; #{ADVICE}"
    ensure
      FileUtils.mv(File.join(@folder, "taken-away"), extension)
    end

    def environment = { "GEM_HOME" => GEM_HOME, "PATH" => "/usr/bin:/bin" }

    def specs_environment = { "MEMINTRO_SPEC_CACHE" => "#{INSIDE}/programs" }

    def log(name) = File.join(@folder, "#{name}.log")

    # @return [String] what it said
    # @raise [Failed] if it fails and should not, or succeeds and should fail
    def run(name, *command, chdir: "/", binds: {}, fails: false)
      FileUtils.rm_f(log(name))
      status = @root.run("timeout", "--kill-after=20", "#{MINUTES}m", *command,
                         env: environment.merge(specs_environment), binds: { @folder => INSIDE, **binds },
                         chdir: chdir, out: log(name))
      text = File.read(log(name))
      return text if status.success? ^ fails

      raise Failed, "#{name}: #{status} with Ruby #{@entry.name}; #{log(name)} ends:\n#{text.lines.last(10).join}"
    end
  end
end
