# frozen_string_literal: true

require "yaml"

module Matrix
  # One line of rubies.yml: a Ruby, where it comes from and how it is called there.
  class RubyEntry
    TABLE = File.join(__dir__, "rubies.yml")

    attr_reader :name, :debian, :package, :suite, :configure, :patched

    # @return [Array<RubyEntry>] in the table's order
    def self.all
      YAML.safe_load(File.read(TABLE)).map { |name, fields| new(name.to_s, fields) }
    end

    # @param names [Array<String>] none for all
    # @return [Array<RubyEntry>]
    def self.named(names)
      return all if names.empty?

      names.map do |name|
        all.find { |entry| entry.name == name } ||
          abort("matrix: no Ruby #{name}; rubies.yml has #{all.map(&:name).join(', ')}")
      end
    end

    def initialize(name, fields)
      @name = name
      @debian = fields.fetch("debian")
      @package = fields.fetch("ruby")
      @suite = fields["from"]
      @configure = fields["configure"]
      @patched = fields["patched"]
      @smoke = fields["smoke"]
      @yjit = fields["yjit"]
    end

    def yjit? = @yjit == true

    def smoke? = !@smoke.nil?

    # Built from the source package, not installed.
    def source? = !configure.nil?

    # Folder of the source build inside the root.
    def prefix = "/opt/ruby-#{name}"

    # The program inside the root.
    def program = source? ? "#{prefix}/bin/ruby" : "/usr/bin/#{package}"

    # Folder inside the root where `ruby`, `gem`, `rspec` and the like are this Ruby's.
    def bin = "/opt/matrix/#{name}/bin"

    # Whether Debian's native gems, which are built for the release's own Ruby, fit.
    def own_of_release? = suite.nil? && !source?
  end
end
