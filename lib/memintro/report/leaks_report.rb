# frozen_string_literal: true

require_relative "../malloc/leaks"
require_relative "../support/json_text"
require_relative "../support/style"

module Memintro
  # Leaked blocks as text, JSON or a page of its own: what `memintro leaks` prints.
  # @api private
  class LeaksReport
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze
    # @param leaks [Leaks]
    # @param name [String, nil] of the process, for a heading
    # @param pid [Integer, nil]
    def initialize(leaks, name: nil, pid: nil)
      @leaks = leaks
      @name = name
      @pid = pid
    end

    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] groups of each verdict; nil: all
    # @return [nil]
    def write(io, format: :text, top: nil)
      io.write(case format
               when :json then json(top)
               when :html then html(top)
               else Native.leaks_report(@leaks.to_h, top, Style.colour?(io))
               end)
      nil
    end

    private

    def json(top)
      head = { memintro_leaks: Leaks::LAYOUT, pid: @pid }.compact
      JsonText.dump({ **head, **Leaks.of_hash(Native.leaks_chosen(@leaks.to_h, top)).to_h }) << "\n"
    end

    def html(top)
      Native.leaks_page(@leaks.to_h, (@name || "process #{@pid || Process.pid}").to_s, top)
    end
  end
end
