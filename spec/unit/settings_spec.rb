# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/support/settings"

RSpec.describe Memintro::Settings do
  it "gives each setting a flag, a variable and an attribute of one name" do
    sites = described_class[:max_sites]
    expect([sites.flag, sites.variable]).to eq(["--max-sites", "MEMINTRO_MAX_SITES"])
    attributes = described_class::ALL.map(&:name)
    expect(Memintro::Configuration.new({}).to_h.keys).to eq(attributes)
    expect(described_class::ALL.map(&:help)).to all(satisfy { |help| help.none? { |line| line.start_with?("-") } })
  end

  it "can sort by what a call site has" do
    expect(described_class::SORTABLE).to match_array(Memintro::CallSite::FIGURES)
  end

  describe Memintro::Configuration do
    it "begins with the variables, and with defaults where they are unset or empty" do
      configuration = described_class.new(
        "MEMINTRO_FORMAT" => "json", "MEMINTRO_TOP" => "all", "MEMINTRO_EVERY" => "0.5", "MEMINTRO_MAX_SITES" => "100",
        "MEMINTRO_NATIVE_CHILDREN" => "1", "MEMINTRO_REPORT" => "/tmp/%p", "MEMINTRO_COMPAT" => ""
      )
      expect(configuration.to_h).to eq(
        report: "/tmp/%p", format: :json, top: :all, by: nil, every: 0.5, app_root: nil, compat: nil,
        native_children: true, mode: :full, sample_bytes: nil, objects: false, stack_depth: 1,
        native_callers: nil, stop_after: nil, max_sites: 100, max_tracker_bytes: nil
      )
    end

    {
      "MEMINTRO_FORMAT" => ["pdf", "text or json or html or folded or speedscope"],
      "MEMINTRO_STACK_DEPTH" => ["65", "a whole number from 1 to 64"],
      "MEMINTRO_TOP" => ["0", "a whole number of at least 1, or all"],
      "MEMINTRO_STOP_AFTER" => ["99999999999", "a number of seconds above 0 and at most 1000000000"],
      "MEMINTRO_MAX_TRACKER_BYTES" => ["9" * 20, "a whole number of at least 4194304 and at most #{(2**63) - 1}"],
      "MEMINTRO_SAMPLE_BYTES" => ["9" * 20, "a whole number from 1 to #{2**30}"],
      "MEMINTRO_EVERY" => ["0.0", "a number of seconds above 0"],
      "MEMINTRO_MAX_SITES" => ["1k", "a whole number from 1 to 16777216"],
      "MEMINTRO_NATIVE_CHILDREN" => ["yes", "1 or 0"],
      "MEMINTRO_NATIVE_CALLERS" => ["no", "1 or 0"]
    }.each do |variable, (wrong, allowed)|
      it "refuses #{variable}=#{wrong}" do
        expect { described_class.new(variable => wrong) }
          .to raise_error(ArgumentError, "#{variable} is #{wrong.inspect}; it must be #{allowed}")
      end
    end

    it "checks what a program sets" do
      configuration = described_class.new({})
      configuration.format = "json"
      configuration.every = 2
      configuration.max_sites = nil
      expect([configuration.format, configuration.every, configuration.max_sites]).to eq([:json, 2, nil])
      expect { configuration.max_sites = -1 }
        .to raise_error(ArgumentError, "max_sites is -1; it must be a whole number from 1 to 16777216, or nil")
      expect { configuration.top = 2**64 }
        .to raise_error(ArgumentError, "top is #{2**64}; it must be a whole number of at least 1 and at most " \
                                       "#{(2**63) - 1}, or all, or nil")
      expect { configuration.native_children = 1 }
        .to raise_error(ArgumentError, "native_children is 1; it must be true or false")
      expect { configuration.native_callers = "0" }
        .to raise_error(ArgumentError, 'native_callers is "0"; it must be true or false, or nil')
      expect(configuration.inspect.size).to be < 200
    end
  end
end
